"""Which queues a worker asks for work, and for how much (spec §8: highest class first).

An engine says when there is work and never that there is none. So a worker asks the most urgent
queues first, and takes silence for an answer: a credit that lay unused for longer than an answer
takes is *quiet*, and shows that its queue is empty at present. Only when a class is quiet is the
next one asked.

    fresh   asked just now; counts against the free slots
    quiet   asked before, and nothing came: stays, so that whatever comes is taken at once

There are never more fresh credits than free slots. What can arrive beyond the slots is therefore
what comes on a quiet queue while the slots are filled from elsewhere: as many as it has credits,
once, since nothing is asked while no slot is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct


class Source(Struct, kw_only=True):
    """One queue, as far as asking goes."""

    level: int
    """0 is asked first."""
    credits: int = 0
    """Granted and not yet used."""
    asked_s: float = -math.inf
    """When it was last asked, or last gave something."""
    is_hot: bool = False
    """Whether work came from here last: there may be more."""
    allowance: float = math.inf
    """How many more may begin under its kind's rate."""

    def is_quiet(self, now_s: float, patience_s: float) -> bool:
        """Whether it was asked long enough ago to know that it has nothing.

        Compared as the time to look again is worked out: by a rounding less it would be now again.
        """
        return self.credits > 0 and now_s >= self.asked_s + patience_s


class Plan(Struct, frozen=True):
    """What to do now."""

    grants: tuple[int, ...]
    """By how much to raise each source's credits."""
    look_s: float
    """When to think again, if nothing happens before."""


def plan(sources: Sequence[Source], *, free: int, now_s: float, patience_s: float) -> Plan:
    """Whom to ask for how much, with so many slots free."""
    grants = [0] * len(sources)
    look_s = math.inf
    if free <= 0:
        return Plan(tuple(grants), look_s)
    fresh = [0 if one.is_quiet(now_s, patience_s) else one.credits for one in sources]
    room = free - sum(fresh)
    asked_level = math.inf
    # Whoever was asked longest ago comes first, so that equals take turns.
    for at in sorted(range(len(sources)), key=lambda at: (sources[at].level, sources[at].asked_s)):
        source = sources[at]
        if source.level > asked_level:
            break  # somebody more urgent was asked and may still answer
        if source.is_quiet(now_s, patience_s):
            continue
        wanted = room if source.is_hot else min(room, 1 - source.credits)
        grants[at] = int(max(min(wanted, source.allowance - source.credits), 0))
        room -= grants[at]
        # Without either its kind is at its rate, or every slot is spoken for.
        if grants[at] or fresh[at]:
            asked_level = source.level
            since_s = now_s if grants[at] else source.asked_s
            look_s = min(look_s, since_s + patience_s)
    return Plan(tuple(grants), look_s)
