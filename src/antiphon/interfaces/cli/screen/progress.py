"""Progress of a long transfer: one line that is rewritten, on a terminal only."""

from __future__ import annotations

import time
from typing import Final, Self

from antiphon.interfaces.cli.screen.terminal import err

SHOWN_FROM: Final = 8 * 1024 * 1024
"""Smaller transfers end before a progress line could be read."""
EVERY_S: Final = 0.2

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


class Progress:
    """Shows the progress of one transfer; `name` is what is transferred."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self._told = 0.0
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Report that `done` of `total` bytes are transferred."""
        now = time.monotonic()
        if max(done, total) < SHOWN_FROM or now - self._told < EVERY_S:
            return
        self._told = now
        self._is_shown = True
        share = f"  {100 * done // total} %" if total else ""
        pace = f"  {size_words(int(done / max(now - self._began, 0.001)))}/s"
        err.fading((f"{self._name}  {size_words(done)}{share}{pace}", "quiet"))

    def end(self) -> None:
        """Erase the line."""
        if self._is_shown:
            err.erase()


class Uploads:
    """The progress of uploading each input, one after the other."""

    def __init__(self) -> None:
        self._shown: list[Progress] = []

    def telling(self, name: str) -> Progress:
        """The progress line for one file."""
        self._end()
        self._shown.append(Progress(name))
        return self._shown[-1]

    def _end(self) -> None:
        while self._shown:
            self._shown.pop().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def size_words(size: int) -> str:
    """A number of bytes in decimal units: 1.5 MB."""
    value = float(size)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:  # noqa: PLR2004 - a thousand of each is the next
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{size} bytes"
