"""What every agent did, one line per step, written at once: a kill loses nothing of it.

Lines and laws are those of the simulated inboxes (`simulator.messages`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from simulator.messages.message_laws import Line


class Journal:
    """One agent's, for writing."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, what: str, key: str) -> None:
        os.write(self._handle, f"{what} {key} {time.monotonic_ns()}\n".encode())


def read_journal(path: Path) -> list[Line]:
    """Every whole line."""
    if not path.exists():
        return []
    return list(_lines(path.read_text().split("\n")[:-1]))


def _lines(texts: Iterable[str]) -> Iterator[Line]:
    for text in texts:
        what, key, at_ns = text.split(" ")
        yield Line(what, key, int(at_ns))
