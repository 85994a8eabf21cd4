"""Whose turn it is to try for a lock: those that wait for it, in the order in which they came.

Waiters tell each other on the bus when they came. The rank of one is the number of others that came
before it; rank × claim window is how long it lets the others go first once the lock is free.
Nothing is promised by that: messages get lost, and the log decides. A silent waiter is forgotten.

Anybody that may take the lock can say that it came long ago. So an arrival counts from a little
before it was first heard of: that moves nobody ahead of those who have already waited longer. And
nobody lets more than a few go first: a crowd that does not exist would hold up everybody.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.record.op import AgentName, Count

REFRESH_S: Final = 2.0
"""How often a waiter says that it still waits."""
FORGET_S: Final = 3.2 * REFRESH_S
"""How long a silent waiter keeps its rank: two messages may get lost."""
CREDIT_MS: Final = 10_000
"""How long before it was first heard of an arrival may have been."""
MOST_WAITERS: Final = 1_024
MOST_TURNS: Final = 8
"""How many a waiter lets go first at most, however many say that they were there before."""

Ticket = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]


class Arrival(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a waiter says: which lock, since when, and whether it wants the others' answers."""

    name: Annotated[str, Meta(pattern=r"^[a-z2-7]{1,64}\Z")]
    """The lock's key as a subject token."""
    agent: AgentName
    ticket: Ticket
    """One wait; the same agent may wait twice."""
    arrived_ms: Count
    asks: bool = False
    """It has just come, and does not know who was there before."""
    leaves: bool = False
    """It waits no longer."""


class _Waiter(Struct):
    arrived_ms: int
    heard_s: float


class LockTurns:
    """Those that wait for one lock, as one of them has heard."""

    def __init__(self, ticket: str, arrived_ms: int) -> None:
        """Nobody else is known yet."""
        self.ticket = ticket
        self.arrived_ms = arrived_ms
        self._others: dict[str, _Waiter] = {}

    def heard(self, author: str, said: Arrival, *, now_ms: int, now_s: float) -> None:
        """Somebody said that it waits, or that it waits no longer."""
        who = f"{author} {said.ticket}"
        if said.ticket == self.ticket:
            return
        if said.leaves:
            self._others.pop(who, None)
            return
        known = self._others.get(who)
        if known is not None:
            known.heard_s = now_s
            return
        self._forget(now_s)
        if len(self._others) < MOST_WAITERS:
            arrived_ms = max(said.arrived_ms, now_ms - CREDIT_MS)
            self._others[who] = _Waiter(arrived_ms, now_s)

    def rank(self, now_s: float) -> int:
        """How many that came before are still there, as far as they are let go first."""
        self._forget(now_s)
        mine = (self.arrived_ms, self.ticket)
        others = self._others.items()
        before = sum((one.arrived_ms, who.rpartition(" ")[2]) < mine for who, one in others)
        return min(before, MOST_TURNS)

    def _forget(self, now_s: float) -> None:
        silent = [who for who, one in self._others.items() if now_s - one.heard_s > FORGET_S]
        for who in silent:
            del self._others[who]
