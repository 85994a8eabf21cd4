from pathlib import Path

import pytest

from antiphon.errors import Rejected
from antiphon.sandbox import Command, Limits
from antiphon.sandbox.command import check, check_name
from antiphon.sandbox.process.run_end import cpu_ms, exit_of

PATH = Path("/etc/hostname")


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": ()},
        {"argv": ("",)},
        {"argv": ("a=b",)},
        {"argv": ("sh", "zero\0byte")},
        {"argv": ("sh", "\udcff")},
        {"env": {"A B": "1"}},
        {"env": {"A=B": "1"}},
        {"env": {"": "1"}},
        {"env": {"A": "zero\0byte"}},
        {"inputs": (("../up", PATH),)},
        {"inputs": (("/etc/passwd", PATH),)},
        {"inputs": (("a//b", PATH),)},
        {"inputs": (("a/./b", PATH),)},
        {"inputs": (("", PATH),)},
        {"inputs": (("x" * 256, PATH),)},
        {"inputs": (("a", PATH), ("a", PATH))},
        {"inputs": (("a", PATH), ("b", PATH), ("a/b", PATH))},
        {"secrets": (("a/b", PATH),)},
        {"secrets": (("..", PATH),)},
        {"secrets": (("a", PATH), ("a", PATH))},
        {"cwd": "../.."},
        {"cwd": "/"},
        {"outputs": ("/etc/*",)},
        {"outputs": ("a/../../b",)},
        {"outputs": ("*",) * 257},
        {"outputs": ("*" * 1025,)},
        {"limits": Limits(work_bytes=0)},
        {"limits": Limits(timeout_s=-1)},
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(fields):
    with pytest.raises(Rejected) as refused:
        check(Command(**{"argv": ("true",), **fields}))
    assert refused.value.reason == "command"


def test_an_ordinary_command_passes():
    check(
        Command(
            argv=("sh", "-c", "a=b"),
            env={"A": "ä = b"},
            inputs=(("a", PATH), ("ab", PATH), ("b/c", PATH), ("b/d", PATH)),
            secrets=(("token", PATH), ("token.pem", PATH)),
            cwd="b/c.d",
            outputs=("**/*.txt", "..a"),
        )
    )


@pytest.mark.parametrize("name", ["a", "a/b", "...", ".hidden", "a b", "ü"])
def test_names_inside_a_directory(name):
    check_name(name)


@pytest.mark.parametrize("code, exit_", [(0, 0), (1, 1), (128, 128), (137, -9), (143, -15)])
def test_a_shells_word_for_a_signal_is_read_back(code, exit_):
    assert exit_of(code) == exit_


@pytest.mark.parametrize(
    "times, cpu_ms_",
    [
        ("0m0.50s 0m0.50s\n1m2.25s 0m0.01s\n", 62_260),  # dash
        ("0m0.005s 0m0.003s\n0m1.250s 0m0.125s\n", 1_375),  # bash
        ("", 0),
        ("ready\n", 0),
    ],
)
def test_a_shells_word_for_its_childrens_time(times, cpu_ms_):
    assert cpu_ms(times) == cpu_ms_


@pytest.mark.parametrize("code", [193, 255])
def test_codes_beyond_the_signals_stay(code):
    assert exit_of(code) == code
