"""How far a long transfer has come: one line that the next one replaces, on a terminal only."""

from __future__ import annotations

import time
from typing import Final

from antiphon.interfaces.cli.screen.terminal import err

SHOWN_FROM: Final = 8 * 1024 * 1024
"""Less than this is there before anybody could read about it."""
EVERY_S: Final = 0.2

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB")


class Progress:
    """Says how far something has come; `name` is what is moving."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.monotonic()
        self._told = 0.0
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Told by whoever moves the bytes."""
        now = time.monotonic()
        if max(done, total) < SHOWN_FROM or now - self._told < EVERY_S:
            return
        self._told = now
        self._is_shown = True
        share = f"  {100 * done // total} %" if total else ""
        pace = f"  {size_words(int(done / max(now - self._began, 0.001)))}/s"
        err.fading((f"{self._name}  {size_words(done)}{share}{pace}", "quiet"))

    def end(self) -> None:
        """Take the line away."""
        if self._is_shown:
            err.erase()


def size_words(size: int) -> str:
    """A number of bytes as a person reads it, in decimal units."""
    value = float(size)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:  # noqa: PLR2004 - a thousand of each is the next
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{size} bytes"
