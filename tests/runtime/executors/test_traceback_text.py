"""What is kept of a handler's traceback: where it happened, in a few lines, and no values."""

import sys
from pathlib import Path

import pytest

from antiphon.runtime.executors import traceback_text as shown
from antiphon.runtime.executors.failure import failure_of


def raised(function, *args):
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whatever it raises
        return error
    raise AssertionError("it raised nothing")


def deep(depth: int, note: str) -> None:
    if depth == 0:
        raise ValueError("the innermost")
    deep(depth - 1, note)


def test_it_names_file_line_function_and_source_and_shows_no_values():
    password = "hunter" + "2" * 8
    text = shown.traceback_text(raised(deep, 1, password))
    lines = text.splitlines()
    assert lines[-1] == "ValueError: the innermost"
    assert lines[-2] == '    raise ValueError("the innermost")'
    assert lines[-3].endswith("in deep")
    assert "test_traceback_text.py" in lines[-3]
    assert password not in text


def test_paths_say_nothing_about_the_machine(tmp_path, monkeypatch):
    folder = tmp_path / "somebodys-home"
    folder.mkdir()
    (folder / "orders_of_test.py").write_text("def ship():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(str(folder))
    import orders_of_test

    text = shown.traceback_text(raised(orders_of_test.ship))
    assert 'File "orders_of_test.py", line 2, in ship' in text
    assert "somebodys-home" not in text
    sys.modules.pop("orders_of_test")


def test_of_a_deep_stack_the_innermost_calls_are_kept():
    text = shown.traceback_text(raised(deep, 200, ""))
    assert text.splitlines()[-1] == "ValueError: the innermost"
    assert 'raise ValueError("the innermost")' in text
    assert text.count("in deep") == shown.MAX_FRAMES
    assert shown.LEFT_OUT in text


def test_it_is_bounded_whatever_the_error_says():
    def wide():
        try:
            int("ä" * 1_000)
        except ValueError as first:
            raise RuntimeError("\ud800" + "x" * 100_000) from first

    for error in (raised(wide), raised(deep, 900, ""), raised(chain, 50)):
        text = failure_of(error).traceback
        assert 0 < len(text.encode()) <= shown.MAX_BYTES
        assert type(error).__name__ in text.splitlines()[-1]


def chain(length: int) -> None:
    try:
        if length:
            chain(length - 1)
    finally:
        raise KeyError(length)


def test_causes_come_first_and_a_suppressed_context_is_left_out():
    def caused():
        try:
            deep(0, "")
        except ValueError as first:
            raise OSError("second") from first

    def hidden():
        try:
            deep(0, "")
        except ValueError:
            raise OSError("second") from None

    text = shown.traceback_text(raised(caused))
    assert text.index("ValueError: the innermost") < text.index("which caused:")
    assert text.index("which caused:") < text.index("OSError: second")
    assert "ValueError" not in shown.traceback_text(raised(hidden))


def test_members_of_a_group_are_shown():
    def both():
        raise ExceptionGroup("two", [raised(deep, 0, ""), OSError("other")])

    text = shown.traceback_text(raised(both))
    assert "member 1 of 2:" in text
    assert "ValueError: the innermost" in text
    assert "OSError: other" in text


def test_an_error_that_no_code_raised_has_none():
    assert failure_of(TimeoutError("took longer than 5 s")).traceback == ""


def test_what_carries_the_call_to_the_handler_is_left_out():
    from antiphon.runtime.executors.failure import given_up

    def passed_on():
        with given_up:
            deep(0, "")

    text = shown.traceback_text(raised(passed_on))
    assert str(Path(shown.__file__).parent) not in text
    assert "in passed_on" in text


@pytest.mark.parametrize(
    "message",
    [
        "cannot reach https://admin:hunter2222@db.example/x",
        "login with hunter2222 was refused",
    ],
)
def test_credentials_that_are_known_do_not_reach_the_log(message, monkeypatch):
    monkeypatch.setenv("SHOP_DB_PASSWORD", "hunter2222")

    def fail():
        raise ConnectionError(message)

    failure = failure_of(raised(fail))
    assert "hunter2222" not in failure.message + failure.traceback
    assert shown.HIDDEN in failure.message
    assert shown.HIDDEN in failure.traceback


def test_an_error_that_cannot_be_printed_still_has_a_traceback():
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no")

    def fail():
        raise Broken

    assert shown.traceback_text(raised(fail)).splitlines()[-1] == "Broken"
