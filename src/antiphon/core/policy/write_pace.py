"""Who writes to the log faster than the mesh reads it, and for how long its login is paused.

No server bounds how much one user writes, and everybody's records are read in one order: what one
member writes in excess delays what all others do. So the node beside the gate compares how far it
is behind with who wrote what it is reading (docs/decisions/0061).

A party is found only if it wrote more than half of the last seconds, and more than any node should
mind. So nobody is paused for what others wrote, or because a node is slow. What else has to hold
depends on whether somebody else uses the mesh, which shows by what it wrote lately:

- If not, only those wait who read. The node has to be far behind.
- If so, others wait for what is not read yet: a little behind is enough, and so are slow writes of
  the node itself. A disk may be slow, so these count by how many times longer they take than while
  nobody wrote much.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

BEHIND_MS: Final = 1_000
"""How old a record may be when it is read."""
LATE_MS: Final = 400
LATE_LOOKS: Final = 2
"""The same while somebody else uses the mesh, and at how many looks in a row."""
SLOW_MS: Final = 250
"""How long it may take until a node has read what it wrote. An engine makes each record durable
before the next: whoever writes without a pause makes everybody wait, however fast a node reads."""
SLOWER: Final = 4
"""And how many times as long as while nobody wrote much."""
CALM_RECORDS: Final = 100
"""How many records of everybody within the window are not much."""
_CALM_KEPT: Final = 31
OTHERS_MS: Final = 60_000
"""How long somebody else counts as using the mesh after a record: its next may wait for others."""
_LAST_KEPT: Final = 2
"""Parties: one of them is not the one in question."""
FEWEST_WRITES: Final = 3
"""How many of them tell something."""
SLOW_WITHIN_MS: Final = 1_500
_WRITES_KEPT: Final = 256
WINDOW_MS: Final = 4_000
SLOT_MS: Final = 500
LEAST_RECORDS: Final = 800
"""What a party may always write within the window, in records of up to 4 KiB."""
SHARED_RECORDS: Final = 200
"""The same while somebody else uses the mesh. Few, since a slow engine takes no more, and a slow
node reads no more: what one sends at once is what all others wait for."""
_RECORD_BYTES: Final = 4_096
_RECORD_LINKS: Final = 32
"""Jobs that a record waits for, each of which a node looks up."""
_ANSWERS: Final = frozenset({"/job/claim", "/job/complete", "/job/answer"})
PAUSE_S: Final = 10
LONGEST_PAUSE_S: Final = 320
FORGIVEN_S: Final = 600
"""After so long without a pause the next one is as short as the first."""


class Excess(Struct, frozen=True):
    """A party that writes too fast."""

    party: str
    records: int
    """What it wrote in the window; one that takes a node long counts as several."""


def is_counted(command: str, *, is_accepted: bool) -> bool:
    """Whether a record counts for whoever signed it.

    Not one that was rejected: anybody who may read a record can send it again. And not what a
    worker writes about jobs that others submitted: the more it does, the better.
    """
    return is_accepted and command not in _ANSWERS


class WritePace:
    """What each party wrote in the last seconds of the log, by commit time."""

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, int]] = {}
        self._pauses: dict[str, tuple[int, int]] = {}
        """By party: how many pauses in a row, and when the last one ends."""
        self._writes: deque[tuple[int, int]] = deque(maxlen=_WRITES_KEPT)
        """Of the node's own records: when each was read, and how long after it was signed."""
        self._calm: deque[int] = deque(maxlen=_CALM_KEPT)
        """How long that took of late, while nobody wrote much."""
        self._calm_from_ms = 0
        """What a paused party wrote before is still being worked off until then."""
        self._last: dict[str, int] = {}
        """The two parties that wrote last, and when."""
        self._late_looks = 0
        """At how many looks in a row the node was behind a little."""

    def note(self, party: str, commit_ms: int, size: int, links: int = 0) -> None:
        """Count a record that was read; the party is empty if nobody knows whose it is.

        A record that is large, or that waits for many jobs, counts as several.
        """
        slot = commit_ms // SLOT_MS
        written = self._slots.get(slot)
        if written is None:
            written = self._slots[slot] = {}
            for old in [one for one in self._slots if one <= slot - WINDOW_MS // SLOT_MS]:
                del self._slots[old]
        weight = 1 + size // _RECORD_BYTES + links // _RECORD_LINKS
        written[party] = written.get(party, 0) + weight
        if party and self._last.get(party) != commit_ms:
            self._last.pop(party, None)
            self._last[party] = commit_ms
            if len(self._last) > _LAST_KEPT:
                del self._last[next(iter(self._last))]

    def wrote(self, signed_ms: int, read_ms: int) -> None:
        """Note when the node signed a record and when it read it, by its own clock."""
        self._writes.append((read_ms, read_ms - signed_ms))
        total = sum(_sums(self._slots.values()).values())
        if total <= CALM_RECORDS and read_ms >= self._calm_from_ms:
            self._calm.append(read_ms - signed_ms)

    def _is_slow(self) -> bool:
        """Whether most of what the node wrote just now took long."""
        newest_ms = self._writes[-1][0] if self._writes else 0
        lately = [took for at_ms, took in self._writes if at_ms > newest_ms - SLOW_WITHIN_MS]
        slow_ms = max(SLOW_MS, SLOWER * _middle(self._calm))
        return len(lately) >= FEWEST_WRITES and _middle(lately) > slow_ms

    def _has_others(self, party: str) -> bool:
        """Whether somebody else wrote lately."""
        newest_ms = max(self._last.values(), default=0)
        times = (at_ms for one, at_ms in self._last.items() if one != party)
        return any(at_ms > newest_ms - OTHERS_MS for at_ms in times)

    def excess(self, behind_ms: int) -> Excess | None:
        """Who wrote most of what is late, if the node is behind or its writes are slow.

        To be asked again and again.
        """
        is_behind = behind_ms >= BEHIND_MS
        self._late_looks = self._late_looks + 1 if behind_ms >= LATE_MS else 0
        is_late = self._late_looks >= LATE_LOOKS or self._is_slow()
        if not is_behind and not is_late:
            return None
        sums = _sums(self._slots.values())
        party = max(sums, key=lambda one: sums[one], default="")
        if not party or 2 * sums[party] <= sum(sums.values()):
            return None
        is_shared = is_late and self._has_others(party)
        if (is_behind and sums[party] > LEAST_RECORDS) or (
            is_shared and sums[party] > SHARED_RECORDS
        ):
            return Excess(party, sums[party])
        return None

    def pause_s(self, party: str, now_s: int) -> int:
        """How long to pause a party now: twice as long as the last time."""
        times, ended_s = self._pauses.get(party, (0, 0))
        if now_s - ended_s > FORGIVEN_S:
            times = 0
        length = min(PAUSE_S << times, LONGEST_PAUSE_S)
        self._pauses = {
            one: (count, end_s)
            for one, (count, end_s) in self._pauses.items()
            if now_s - end_s <= FORGIVEN_S
        }
        self._pauses[party] = (times + 1, now_s + length)
        self._slots.clear()
        self._writes.clear()
        self._late_looks = 0
        self._calm_from_ms = 1000 * (now_s + length)
        return length


def _middle(times: Collection[int]) -> int:
    return sorted(times)[len(times) // 2] if times else 0


def _sums(slots: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for written in slots:
        for party, count in written.items():
            sums[party] = sums.get(party, 0) + count
    return sums
