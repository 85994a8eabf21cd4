"""How several parties share what a process has: places, bytes, processor time.

One law for all three: *nobody takes more than is still free*. One greedy party gets half, two get a
third each, and whoever comes next finds room.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

REMEMBERED_S: Final = 2.0
"""After so long, work counts for 1/e of what it took."""
PARTIES: Final = 4_096
"""Parties whose work is remembered; those that used least are forgotten first."""
A_LITTLE: Final = 1 / 64
"""A part of the whole that anybody may use beside others, however many those are."""
COUNTED_EVERY_S: Final = 0.05
NOTHING_S: Final = 1e-4


class Shares:
    """Places or bytes that parties hold."""

    def __init__(self, whole: int, each: int) -> None:
        """`whole` for everybody, and at most `each` for one party that holds several."""
        self._whole = whole
        self._each = each
        self._taken = 0
        self._held: Counter[str] = Counter()

    def has_room(self, party: str, amount: int) -> bool:
        """Whether a party may hold so much more. Who holds nothing gets what fits."""
        held, free = self._held[party], self._whole - self._taken
        return amount <= free and (not held or held + amount <= min(self._each, free))

    def held_by(self, party: str) -> int:
        """How much a party holds."""
        return self._held[party]

    def take(self, party: str, amount: int) -> None:
        """Hold more."""
        self._taken += amount
        self._held[party] += amount

    def give_back(self, party: str, amount: int) -> None:
        """Hold less."""
        self._taken -= amount
        self._held[party] -= amount
        if not self._held[party]:
            del self._held[party]


class WorkShares:
    """How much processor time the answers to each party took lately.

    A party that took much more than its share, by one long answer, waits for it alone: what it took
    too much is not missing for others.
    """

    def __init__(self, part: float) -> None:
        """`part` of one core is for all parties together, in the long run."""
        self._whole_s = part * REMEMBERED_S
        self._parties: dict[str, tuple[float, float]] = {}
        """What each party used, and when that was worked out."""
        self._busy = 0
        """How many parties use more than a little."""
        self._counted_s = -math.inf

    def note(self, party: str, seconds: float, now_s: float) -> None:
        """Count work; less than 0 takes back what was counted ahead."""
        if party not in self._parties and len(self._parties) >= PARTIES:
            self._count(now_s)
        self._parties[party] = (max(self._used_s(party, now_s) + seconds, 0.0), now_s)

    def wait_s(self, party: str, now_s: float) -> float:
        """How long until a party has used no more than is still free; 0 if that is so."""
        used_s = self._used_s(party, now_s)
        if used_s <= self._whole_s * A_LITTLE:
            return 0.0
        if now_s - self._counted_s >= COUNTED_EVERY_S:
            self._count(now_s)
        too_much = used_s * (max(self._busy, 1) + 1) / self._whole_s
        return REMEMBERED_S * math.log(too_much) if too_much > 1 else 0.0

    def _used_s(self, party: str, now_s: float) -> float:
        seconds, at_s = self._parties.get(party, (0.0, 0.0))
        return seconds * math.exp((at_s - now_s) / REMEMBERED_S) if seconds else 0.0

    def _count(self, now_s: float) -> None:
        """Count who is busy, and forget who used next to nothing."""
        used = {party: self._used_s(party, now_s) for party in self._parties}
        self._busy = sum(used_s > self._whole_s * A_LITTLE for used_s in used.values())
        self._counted_s = now_s
        kept = [party for party, used_s in used.items() if used_s > NOTHING_S]
        if len(kept) >= PARTIES:
            kept = sorted(kept, key=lambda one: used[one])[PARTIES // 2 :]
        self._parties = {party: self._parties[party] for party in kept}
