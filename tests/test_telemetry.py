"""A logged error shows where it happened, and never what the variables held."""

import pytest
import structlog

from antiphon import telemetry


@pytest.fixture(autouse=True)
def as_it_was():
    yield
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
