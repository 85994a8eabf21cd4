"""What every agent did, one line per step, written at once: a kill loses nothing of it.

    S key      it begins to send a message (again, if the last attempt got no answer)
    A key      the gate has confirmed that it is stored
    H key      it was handed a message
    K key      the gate has confirmed its acknowledgement

A key is `sender.receiver.number`; the messages between two agents are one thread.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct


class Line(NamedTuple):
    """One step of an agent."""

    what: str
    key: str
    at_ns: int


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


class Found(Struct, kw_only=True):
    """What all journals say together."""

    sent: int = 0
    """Messages that were confirmed to their sender."""
    unconfirmed: int = 0
    """Messages that an agent began to send, and never learned of."""
    handed: int = 0
    """Messages that were handed to their reader at least once."""
    lost: int = 0
    """Confirmed, and never handed out."""
    delivered_twice: int = 0
    """Handed out after their acknowledgement was confirmed."""
    redelivered: int = 0
    """Handed out again before that: the reader or the gate was killed in between."""
    reordered: int = 0
    """Handed out after a later message of their thread."""
    took_ms: list[float] = []


def judge(journals: Iterable[list[Line]]) -> Found:
    """Hold the journals against what is promised. Nothing is left out."""
    found = Found(took_ms=[])
    begun: dict[str, int] = {}
    stored: set[str] = set()
    handed: dict[str, int] = {}
    for lines in journals:
        ended: set[str] = set()
        times: Counter[str] = Counter()
        newest: dict[str, int] = {}
        for line in lines:
            match line.what:
                case "S":
                    begun.setdefault(line.key, line.at_ns)
                case "A":
                    stored.add(line.key)
                case "K":
                    ended.add(line.key)
                case "H":
                    times[line.key] += 1
                    if line.key in ended:
                        found.delivered_twice += 1
                    elif times[line.key] > 1:
                        found.redelivered += 1
                    thread, _, number = line.key.rpartition(".")
                    if int(number) < newest.get(thread, -1):
                        found.reordered += 1
                    newest[thread] = max(newest.get(thread, -1), int(number))
                    handed.setdefault(line.key, line.at_ns)
    found.sent, found.unconfirmed = len(stored), len(begun.keys() - stored)
    found.handed = len(handed)
    found.lost = len(stored - handed.keys())
    found.took_ms = sorted(
        (at_ns - begun[key]) / 1e6 for key, at_ns in handed.items() if key in begun
    )
    return found
