"""A logged error shows where it happened, and never what the variables held."""

import pytest
import structlog

from antiphon import telemetry


@pytest.fixture(autouse=True)
def as_it_was():
    structlog.reset_defaults()


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_traceback_shows_no_values(style, capsys):
    telemetry.configure("error", style)
    password = "hunter" + "2" * 8

    def log_in():
        held = password  # what a traceback with variables would show
        raise RuntimeError(f"the engine said no to {len(held)} letters")

    try:
        log_in()
    except RuntimeError:
        structlog.get_logger().exception("announcement_failed")
    said = capsys.readouterr().err
    assert "announcement_failed" in said
    assert password not in said


def test_a_program_that_configures_nothing_gets_warnings_on_standard_error_and_no_more(capsys):
    log = telemetry.LazyLogger("antiphon.example")
    log.debug("handler_failed")
    log.warning("clock_wrong")
    said = capsys.readouterr()
    assert said.out == ""
    assert "clock_wrong" in said.err
    assert "handler_failed" not in said.err


def test_a_program_that_configured_structlog_keeps_its_own(capsys):
    structlog.configure(processors=[structlog.processors.JSONRenderer()])
    telemetry.LazyLogger("antiphon.example").debug("handler_failed")
    assert '"handler_failed"' in capsys.readouterr().out
