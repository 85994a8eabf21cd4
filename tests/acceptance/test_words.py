"""What the command line says and understands, without a mesh."""

from typing import get_args

import pytest

from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.state import State
from antiphon.errors import (
    AntiphonError,
    Corrupt,
    Held,
    JobFailed,
    Malformed,
    Misconfigured,
    OutcomeUnknown,
    Outdated,
    Rejected,
)
from antiphon.interfaces.cli.application import run
from antiphon.interfaces.cli.screen.exits import EPILOG, Exit, WrongUsage, code_of, complain
from antiphon.interfaces.cli.screen.terminal import GLYPHS, STYLES, ago, counted, out, span
from antiphon.interfaces.cli.shared.job_options import PriorityName, parse_value


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5),
        ("-5", -5),
        ("2.5", 2.5),
        ("true", True),
        ("null", None),
        ("hello", "hello"),
        ("hello world", "hello world"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("007", "007"),
        ("", ""),
        ('"5"', "5"),
        ("[1, {}]", [1, {}]),
        ("C:\\x", "C:\\x"),
    ],
)
def test_an_argument_is_json_or_a_word(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize("reason, is_told", [("policy", True), ("kind", False), ("", False)])
def test_only_words_of_the_rules_are_given_as_the_reason(capsys, reason, is_told):
    complain(Rejected("it is refused", reason=reason), as_json=False)
    assert (f"why: {reason}" in capsys.readouterr().err) == is_told


def test_a_complaint_about_an_option_names_its_command(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["antiphon", "worker", "tasks", "--label"])
    assert run() == Exit.USAGE
    assert "antiphon worker --help" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{1", '{"a": }', "[1,", '"open'])
def test_an_argument_that_only_looks_like_json_is_refused(text):
    with pytest.raises(WrongUsage):
        parse_value(text)


@pytest.mark.parametrize(
    "error, code",
    [
        (JobFailed("it"), 1),
        (WrongUsage("it"), 2),
        (Misconfigured("it"), 3),
        (Outdated("it"), 3),
        (OutcomeUnknown("it"), 4),
        (Rejected("it"), 5),
        (Malformed("it"), 5),
        (Held("it"), 6),
        (Corrupt("it"), 7),
        (ZeroDivisionError("it"), 70),
    ],
)
def test_every_error_has_its_exit_code(error, code, capsys):
    assert code_of(error) == code
    assert complain(ExceptionGroup("many", [ExceptionGroup("", [error])]), as_json=False) == (
        code if isinstance(error, AntiphonError) else 70
    )
    said = capsys.readouterr().err
    assert "it" in said
    assert "Traceback" not in said


def test_the_help_names_every_exit_code():
    assert all(f" {code.value}  " in EPILOG for code in Exit if code is not Exit.BUG)


def test_the_help_names_every_priority():
    assert get_args(PriorityName) == PRIORITIES


def test_every_state_has_a_colour_and_a_mark():
    names = [state.value for state in State]
    assert all(name in STYLES and name in GLYPHS for name in names)
    assert len(set(GLYPHS.values())) == len(GLYPHS)


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0.0004, "0.000 s"),
        (0.25, "0.250 s"),
        (2.34, "2.3 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3700, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_has_its_unit(seconds, words):
    assert span(seconds) == words


def test_a_moment_is_told_as_a_person_would(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 100_000.0)
    told = [ago(at_s * 1000) for at_s in (100_001, 100_000, 99_958, 99_000, 90_000, 1_000)]
    assert told == ["just now", "just now", "42 s ago", "16 min ago", "2 h ago", "1 d ago"]
    assert [counted(n, "job") for n in (0, 1, 1234)] == ["0 jobs", "1 job", "1,234 jobs"]


def test_nothing_said_can_steer_a_terminal(capsys):
    out.pieces(("\x1b[2J\x9b1m", ""), ("\u202eab\u2066\n", "failed"))
    out.table(("A",), [[("[red]\x1b]8;;http://x\x1b\\", "")]])
    said = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e", "\u2066"} & set(said)
    assert "[red]\\x1b]8;;http://x" in said
