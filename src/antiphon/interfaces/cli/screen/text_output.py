"""Writing down what a job printed, byte for byte; on a terminal, without what would steer it.

A job's worker is somebody else's machine. In a pipe every byte is passed on as it came. On a
terminal colours stay, and any other control sequence is written out instead of being obeyed.
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


class Paper:
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
        """Pass on some bytes."""
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
        """Nothing more comes: on a terminal, leave it at the start of a line, uncoloured."""
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
    """Text of which a terminal obeys nothing but colours and line ends."""
    pieces: list[str] = []
    at = 0
    for colour in _COLOUR.finditer(text):
        pieces += [_written_out(text[at : colour.start()]), colour[0]]
        at = colour.end()
    return "".join([*pieces, _written_out(text[at:])])


def _written_out(text: str) -> str:
    return "".join(letter if letter in _PLAIN else printable(letter) for letter in text)
