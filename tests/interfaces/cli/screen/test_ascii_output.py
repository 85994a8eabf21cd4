"""What is said can be read where only ASCII can."""

import io
from pathlib import Path

import pytest

from antiphon.interfaces.cli.screen import ascii_output
from antiphon.interfaces.cli.screen.terminal import GLYPHS
from tests.source_tree import facts

SOURCE = Path(__file__).resolve().parents[4] / "src" / "antiphon"


def in_ascii(text: str) -> str:
    return text.encode("ascii", ascii_output.ERRORS).decode()


def said() -> set[str]:
    """Every sign that stands in a text of ours and is not ASCII."""
    return {
        letter
        for folder in ("core", "runtime", "sdk", "assembly", "interfaces")
        for path in (SOURCE / folder).rglob("*.py")
        for letter in facts(path).letters
        if letter.isprintable()
    }


def test_every_sign_of_ours_has_a_stand_in():
    assert said() <= set(ascii_output.STAND_INS)
    assert len({in_ascii(glyph) for glyph in GLYPHS.values()}) == len(GLYPHS)


def test_our_signs_are_replaced_and_other_letters_escaped():
    assert in_ascii("✓ succeeded … Grüße") == r"+ succeeded ... Gr\xfc\xdfe"
    assert in_ascii("✗✓ü") == r"x+\xfc"


class Terminal(io.TextIOWrapper):
    """A stream of bytes that a person looks at, or does not."""

    def __init__(self, *, is_terminal: bool, encoding: str = "utf-8") -> None:
        self.bytes = io.BytesIO()
        self.is_terminal = is_terminal
        super().__init__(self.bytes, encoding=encoding)

    def isatty(self) -> bool:
        return self.is_terminal

    def shown(self, text: str) -> str:
        ascii_output.make_readable(self)
        self.write(text)
        self.flush()
        return self.bytes.getvalue().decode("utf-8")


@pytest.mark.parametrize(
    "locale, is_terminal, shown",
    [
        ({"LANG": "C"}, True, "+"),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True, "+"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True, "+"),  # as Python itself sets it
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, True, "✓"),
        ({"LANG": "C.UTF-8"}, True, "✓"),
        ({}, True, "✓"),
        ({"LANG": "C"}, False, "✓"),
    ],
)
def test_a_terminal_in_the_c_locale_is_told_in_ascii(monkeypatch, locale, is_terminal, shown):
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in locale.items():
        monkeypatch.setenv(name, value)
    assert Terminal(is_terminal=is_terminal).shown("✓") == shown


def test_a_stream_that_lacks_a_sign_gets_its_stand_in():
    assert Terminal(is_terminal=False, encoding="ascii").shown("✗ no") == "x no"
