"""Which queues a worker asks for work, and for how much (spec §8: highest priority first).

A queue that was asked either delivers or reports that it is empty: then it is *dry*, and its
credits stay there, so that the next job is delivered at once. The next priority is asked only when
every queue of a higher priority is dry, and only then does a job of it start.

    fresh   asked, and not answered yet; counts against the free slots
    quiet   dry, or unanswered for longer than a reachable engine takes

A job that arrives from a quiet queue while one of a higher priority is fresh waits for that
answer: if the higher jobs need all slots it is returned. Each priority is asked for no more than
the slots that credits of higher priorities leave. So the jobs that arrive beyond the free slots
are at most those asked of lower priorities before, once: nothing is asked while no slot is free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Final

from msgspec import Struct

from antiphon.core.families.jobs.priority import Priority, rank

SHORT_S: Final = 0.05
"""Runs up to this long are short: writing their claims and ends takes about as long."""
MOST_AHEAD: Final = 16


class Source(Struct, kw_only=True):
    """One queue, as seen by the worker that asks it."""

    priority: Priority
    """The highest is asked first."""
    credits: int = 0
    """Credits granted and not yet used."""
    asked_s: float = -math.inf
    """When it was last asked, or last delivered."""
    is_dry: bool = False
    """Whether it reported that it is empty and has delivered nothing since."""
    is_hot: bool = False
    """Whether it delivered last: there may be more."""
    allowance: float = math.inf
    """How many more jobs may start under its kind's rate limit."""

    def is_quiet(self, now_s: float, patience_s: float) -> bool:
        """Whether no delivery is expected from it now.

        Compared in the same way as the next time to look is computed: with a rounding difference
        that time would be now, again and again.
        """
        return self.is_dry or (self.credits > 0 and now_s >= self.asked_s + patience_s)


class Plan(Struct, frozen=True):
    """What to do now."""

    grants: tuple[int, ...]
    """By how much to raise each source's credits."""
    priority: Priority | None
    """The lowest priority that may still deliver; None if none may."""
    look_s: float
    """When to plan again, if nothing happens before."""


class Admission(Enum):
    """What to do with a delivery."""

    TAKE = "take"
    WAIT = "wait"
    """A queue of a higher priority was asked, and may still answer."""
    RETURN = "return"
    """There is no slot for it."""


def plan(sources: Sequence[Source], *, free: int, now_s: float, patience_s: float) -> Plan:
    """Which queues to ask, and for how much, with `free` slots."""
    grants = [0] * len(sources)
    look_s = math.inf
    if free <= 0:
        return Plan(tuple(grants), None, look_s)
    room = free
    # The queue that was asked longest ago comes first, so that equals take turns.
    order = sorted(
        range(len(sources)), key=lambda at: (rank(sources[at].priority), sources[at].asked_s)
    )
    for priority, equals in groupby(order, key=lambda at: sources[at].priority):
        asked = [at for at in equals if not sources[at].is_quiet(now_s, patience_s)]
        room -= sum(sources[at].credits for at in asked)
        for at in asked:
            source = sources[at]
            wanted = room if source.is_hot else min(room, 1 - source.credits)
            grants[at] = int(max(min(wanted, source.allowance - source.credits), 0))
            room -= grants[at]
            # Otherwise its kind is at its rate limit, or every slot is taken.
            if grants[at] or source.credits:
                since_s = now_s if grants[at] else source.asked_s
                look_s = min(look_s, since_s + patience_s)
        if look_s < math.inf:
            return Plan(tuple(grants), priority, look_s)  # they may still answer
    return Plan(tuple(grants), None, look_s)


def admit(
    sources: Sequence[Source], priority: Priority, *, free: int, now_s: float, patience_s: float
) -> Admission:
    """What to do with a delivery of this priority."""
    if free <= 0:
        return Admission.RETURN
    for one in sources:
        is_awaited = one.credits > 0 or one.allowance >= 1
        is_higher = rank(one.priority) < rank(priority)
        if is_higher and is_awaited and not one.is_quiet(now_s, patience_s):
            return Admission.WAIT
    return Admission.TAKE


def claims_ahead(slots: int, *, longest_s: float, oldest_s: float) -> int:
    """How many jobs a worker may hold beyond those that run, so that no slot waits for a claim.

    `longest_s` is the longest of its last runs, `oldest_s` the age of the oldest run under way.
    Only short runs are worth it: behind a long one the job would be kept from other workers.
    """
    return min(slots, MOST_AHEAD) if max(longest_s, oldest_s) <= SHORT_S else 0
