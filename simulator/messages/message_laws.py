"""What holds of messages, whatever fails: told from what every agent saw.

    S key      an agent begins to send a message
    A key      it was confirmed to it that the message is stored
    H key      it was handed a message
    K key      its acknowledgement was confirmed to it

A key is `sender.receiver.number`; the messages between two agents are one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct


class Line(NamedTuple):
    """One step of an agent."""

    what: str
    key: str
    at_ns: int


class MessageFacts(Struct, kw_only=True):
    """What the lines of all agents say together."""

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
    """From the first attempt to send to the first time handed out."""


def judge(agents: Iterable[Iterable[Line]]) -> MessageFacts:
    """Hold what was seen against what is promised. Nothing is left out."""
    found = MessageFacts(took_ms=[])
    begun: dict[str, int] = {}
    stored: set[str] = set()
    handed: dict[str, int] = {}
    for lines in agents:
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
