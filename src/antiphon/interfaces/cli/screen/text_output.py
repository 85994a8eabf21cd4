"""Printing a job's output: byte for byte in a pipe, with control sequences escaped on a terminal.

The output comes from another machine, which may not be trusted. In a pipe every byte is passed on
unchanged. On a terminal colours stay, and every other control sequence is printed as text.
"""

from __future__ import annotations

import codecs
import os
import re
import sys
from typing import IO, Final

from antiphon.telemetry import printable

_PLAIN: Final = frozenset("\n\t\r")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]{0,32}m")
_OPEN_ENDED: Final = re.compile(r"\x1b(\[[0-9;]{0,32})?\Z")
"""The beginning of a colour, cut off by the end of a chunk."""


class JobStream:
    """One of this process's streams."""

    def __init__(self, name: str) -> None:
        """`name` is stdout or stderr."""
        self._stream: IO[str] = getattr(sys, name)
        self._is_terminal = self._stream.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._is_blank = True
        self._at_line_start = True

    def write(self, data: bytes) -> None:
        """Print some bytes."""
        if not data:
            return
        self._is_blank = False
        self._at_line_start = data.endswith(b"\n")
        if self._is_terminal:
            self._write_text(self._kept + self._decoder.decode(data))
            return
        self._stream.flush()
        self._stream.buffer.write(data)  # type: ignore[attr-defined]
        self._stream.buffer.flush()  # type: ignore[attr-defined]

    def _write_text(self, text: str) -> None:
        cut = _OPEN_ENDED.search(text)
        self._kept = cut[0] if cut else ""
        self._stream.write(harmless(text[: cut.start()] if cut else text))
        self._stream.flush()

    def end(self) -> None:
        """End the output: a terminal is left at the start of a line, without colour."""
        if not self._is_terminal or self._is_blank:
            return
        rest = self._kept + self._decoder.decode(b"", final=True)
        self._stream.write(printable(rest))
        if os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("NO_COLOR"):
            self._stream.write("\x1b[0m")
        if not self._at_line_start:
            self._stream.write("\n")
        self._stream.flush()


def harmless(text: str) -> str:
    """The text with every control sequence escaped, except colours and line ends."""
    pieces: list[str] = []
    at = 0
    for colour in _COLOUR.finditer(text):
        pieces += [_written_out(text[at : colour.start()]), colour[0]]
        at = colour.end()
    return "".join([*pieces, _written_out(text[at:])])


def _written_out(text: str) -> str:
    return "".join(letter if letter in _PLAIN else printable(letter) for letter in text)
