"""A worker's credits: applies what `core.policy.queue_credit` decides to the worker's queues.

It remembers when each queue was asked, checks again whenever one reports that it is empty, and
keeps to the rates of its kinds. A kind at its rate limit is not asked for, so that none of its
jobs is claimed only to wait.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.jobs.priority import rank
from antiphon.core.policy import queue_credit
from antiphon.core.policy.queue_credit import Admission, Source
from antiphon.core.policy.rate_limit import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antiphon.core.families.jobs.priority import Priority
    from antiphon.core.policy.rate_limit import Rate
    from antiphon.ports import WorkQueue

PATIENCE_S: Final = 5.0
"""How long an unanswered request holds up queues of lower priorities, at most."""
HINDERED_S: Final = 1.0
"""How long a worker that cannot use its slots waits before it checks again."""
_HAIR_S: Final = 0.001


class _Asked(Struct, eq=False):
    queue: WorkQueue
    kind: str
    source: Source
    held: int = 0
    """Deliveries that wait for a queue of a higher priority to answer."""
    higher: list[_Asked] = []
    """The queues of higher priorities."""


class Credits:
    """Asks the queues of one worker for work."""

    def __init__(
        self, free: Callable[[], int], rates: Mapping[str, Rate], is_hindered: Callable[[], bool]
    ) -> None:
        """`free` returns the number of free slots, `is_hindered` whether none can be used now."""
        self.surplus = 0
        """Deliveries that arrived with no free slot for them, or beyond a rate."""
        self._free = free
        self._is_hindered = is_hindered
        self._buckets = {kind: Bucket(rate) for kind, rate in rates.items()}
        self._asked: list[_Asked] = []
        self._hot: _Asked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._thought: asyncio.Future[None] | None = None
        """Ends with the next check, for tasks that wait for it."""
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no queue left to ask."""
        return not self._asked

    def add(self, queue: WorkQueue, kind: str, priority: Priority) -> None:
        """Ask this queue, too, once everything of a higher priority is quiet."""
        queue.watch(self.top_up_soon)  # it may report that it is empty while it is being asked
        self._asked.append(_Asked(queue, kind, Source(priority=priority)))
        self._compare()

    def remove(self, queue: WorkQueue) -> None:
        """Stop asking it, and stop waiting for it."""
        self._asked = [one for one in self._asked if one.queue is not queue]
        self._compare()
        self.top_up_soon()

    def _compare(self) -> None:
        for one in self._asked:
            own = rank(one.source.priority)
            one.higher = [other for other in self._asked if rank(other.source.priority) < own]

    async def admit(self, queue: WorkQueue, kind: str) -> bool:
        """Whether to begin what was delivered: a slot is free, and its turn has come.

        Waits while a queue of a higher priority was asked and has not answered.
        """
        one = next((one for one in self._asked if one.queue is queue), None)
        is_welcome = one is not None and await self._is_its_turn(one)
        bucket = self._buckets.get(kind)
        if is_welcome and bucket is not None:
            is_welcome = bucket.take(asyncio.get_running_loop().time())
        self.surplus += not is_welcome
        return is_welcome

    def admits_now(self, kind: str) -> bool:
        """Whether what arrived together with a delivery that was admitted may begin, too."""
        return kind not in self._buckets and self._free() > 0

    async def _is_its_turn(self, one: _Asked) -> bool:
        one.source.asked_s = asyncio.get_running_loop().time()
        self._hot = one
        one.held += 1
        try:
            admission = self._admission_of(one)
            if admission is Admission.WAIT:
                self.top_up()
            while admission is Admission.WAIT:
                await self._next_thought()
                admission = self._admission_of(one)
            return admission is Admission.TAKE
        finally:
            one.held -= 1

    def _admission_of(self, one: _Asked) -> Admission:
        now_s = asyncio.get_running_loop().time()
        priority = one.source.priority
        others = self._asked
        if not self._buckets:  # otherwise all priorities of a kind share its rate
            others = one.higher
        self._look_at(others, now_s)
        sources = [other.source for other in others]
        return queue_credit.admit(
            sources, priority, free=self._free(), now_s=now_s, patience_s=PATIENCE_S
        )

    async def _next_thought(self) -> None:
        if self._thought is None:
            self._thought = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._thought)

    def top_up(self) -> None:
        """Ask for as much as there is room for."""
        if self._thought is not None:
            self._thought.set_result(None)
            self._thought = None
        if self._is_over:
            return
        now_s = asyncio.get_running_loop().time()
        if self._is_hindered():
            self._think_again(now_s + HINDERED_S)
            return
        self._look_at(self._asked, now_s)
        sources = [one.source for one in self._asked]
        made = queue_credit.plan(sources, free=self._free(), now_s=now_s, patience_s=PATIENCE_S)
        lowest = -1 if made.priority is None else rank(made.priority)
        for one, count in zip(self._asked, made.grants, strict=True):
            if count:
                one.source.asked_s = now_s
                one.queue.grant(count)
            elif rank(one.source.priority) <= lowest and not one.source.is_dry:
                one.queue.ask()
        self._think_again(min(made.look_s, self._next_token_s(now_s)))

    def top_up_soon(self) -> None:
        """The same once, after what happens at this moment: jobs begin and end in groups."""
        if self._soon is None and not self._is_over:
            self._soon = asyncio.get_running_loop().call_soon(self._on_told)

    def stop(self) -> None:
        """Stop asking."""
        self._is_over = True
        self._think_again(math.inf)
        for one in self._asked:
            one.queue.revoke_credits()

    def _look_at(self, asked: list[_Asked], now_s: float) -> None:
        limited: dict[str, list[Source]] = {}
        for one in asked:
            source = one.source
            source.credits = one.queue.credits + one.held
            source.is_dry = one.queue.is_dry and not one.held
            source.is_hot = one is self._hot
            if one.kind in self._buckets:
                limited.setdefault(one.kind, []).append(source)
        for kind, sources in limited.items():
            # What was asked for just now may still arrive, and would use a token.
            fresh = [_fresh(source, now_s) for source in sources]
            left = self._buckets[kind].available(now_s) - sum(fresh)
            for source, own in zip(sources, fresh, strict=True):
                source.allowance = left + own

    def _next_token_s(self, now_s: float) -> float:
        if not self._buckets or self._free() <= 0:
            return math.inf
        dry = [bucket for bucket in self._buckets.values() if bucket.available(now_s) < 1]
        # A little late: a little early would mean checking again at once.
        return min((bucket.next_s(now_s) for bucket in dry), default=math.inf) + _HAIR_S

    def _think_again(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s < math.inf:
            self._timer = asyncio.get_running_loop().call_at(at_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.top_up()

    def _on_told(self) -> None:
        self._soon = None
        self.top_up()


def _fresh(source: Source, now_s: float) -> int:
    return 0 if source.is_quiet(now_s, PATIENCE_S) else source.credits
