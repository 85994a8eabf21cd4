"""A worker's credits: what `core.asking` decides, carried out on its queues.

It remembers when each queue was asked, has one timer for the next thought, and keeps to the rates
of its kinds: a kind that is at its rate is not asked for, so nothing of it is claimed to wait.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import asking
from antiphon.core.asking import Source
from antiphon.core.pacing import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antiphon.core.pacing import Rate
    from antiphon.ports import WorkQueue

PATIENCE_S: Final = 0.02
PATIENCE_MOST_S: Final = 1.0
ROUND_TRIPS: Final = 3
"""Silence for as many round trips to the engine is an answer, within the two bounds above."""
HINDERED_S: Final = 1.0
"""How long until a worker that could not use its slots looks again whether it can."""
_SMOOTHING: Final = 0.1
_HAIR_S: Final = 0.001


class _Asked(Struct, eq=False):
    queue: WorkQueue
    kind: str
    source: Source
    owed: int = 0
    """Asked for and not seen yet. The queue counts a delivery as soon as it arrives, we only when
    it is taken: in between it is neither a credit nor a slot in use."""


class Credits:
    """Asks the queues of one worker for work."""

    def __init__(
        self, free: Callable[[], int], rates: Mapping[str, Rate], is_hindered: Callable[[], bool]
    ) -> None:
        """`free` tells how many slots are free, `is_hindered` whether none can be used now."""
        self.surplus = 0
        """Deliveries that came with no slot free for them, or beyond a rate."""
        self._free = free
        self._is_hindered = is_hindered
        self._buckets = {kind: Bucket(rate) for kind, rate in rates.items()}
        self._asked: list[_Asked] = []
        self._hot: _Asked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._round_trip_s = 0.0
        self._is_over = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no queue left to ask."""
        return not self._asked

    @property
    def patience_s(self) -> float:
        """How long silence must last to be an answer."""
        return min(max(self._round_trip_s * ROUND_TRIPS, PATIENCE_S), PATIENCE_MOST_S)

    def add(self, queue: WorkQueue, kind: str, *, level: int) -> None:
        """Ask this one, too, once everything of a lower level is quiet."""
        self._asked.append(_Asked(queue, kind, Source(level=level)))

    def remove(self, queue: WorkQueue) -> None:
        """Ask it no more."""
        self._asked = [one for one in self._asked if one.queue is not queue]

    def took_round_trip(self, seconds: float) -> None:
        """An exchange with the engine took this long."""
        if self._round_trip_s == 0.0:
            self._round_trip_s = seconds
        self._round_trip_s += (seconds - self._round_trip_s) * _SMOOTHING

    def admit(self, queue: WorkQueue, kind: str) -> bool:
        """Something was delivered: whether there is a slot for it, and its kind's rate allows."""
        now_s = asyncio.get_running_loop().time()
        for one in self._asked:
            if one.queue is queue:
                one.source.asked_s = now_s
                one.owed = max(one.owed - 1, 0)
                self._hot = one
        bucket = self._buckets.get(kind)
        is_welcome = self._free() > 0 and (bucket is None or bucket.take(now_s))
        self.surplus += not is_welcome
        return is_welcome

    def top_up(self) -> None:
        """Ask for what there is room for."""
        if self._is_over:
            return
        now_s = asyncio.get_running_loop().time()
        if self._is_hindered():
            self._think_again(now_s + HINDERED_S)
            return
        self._look_at(now_s)
        patience_s = self.patience_s
        sources = [one.source for one in self._asked]
        made = asking.plan(sources, free=self._free(), now_s=now_s, patience_s=patience_s)
        for one, count in zip(self._asked, made.grants, strict=True):
            if count:
                one.source.asked_s = now_s
                one.owed = one.source.credits + count
                one.queue.grant(count)
        self._think_again(min(made.look_s, self._next_token_s(now_s)))

    def stop(self) -> None:
        """Ask for nothing any more."""
        self._is_over = True
        self._think_again(math.inf)
        for one in self._asked:
            one.queue.revoke_credits()

    def _look_at(self, now_s: float) -> None:
        patience_s = self.patience_s
        limited: dict[str, list[Source]] = {}
        for one in self._asked:
            source = one.source
            if now_s >= source.asked_s + patience_s:
                one.owed = 0  # whatever arrived was taken long ago
            source.credits = max(one.owed, one.queue.credits)
            source.is_hot = one is self._hot
            if one.kind in self._buckets:
                limited.setdefault(one.kind, []).append(source)
        for kind, sources in limited.items():
            # What was asked for just now may yet come, and would use a token.
            fresh = [_fresh(source, now_s, patience_s) for source in sources]
            left = self._buckets[kind].available(now_s) - sum(fresh)
            for source, own in zip(sources, fresh, strict=True):
                source.allowance = left + own

    def _next_token_s(self, now_s: float) -> float:
        if self._free() <= 0:
            return math.inf
        dry = [bucket for bucket in self._buckets.values() if bucket.available(now_s) < 1]
        # A little late rather than a hair too early, which would be thought about again at once.
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


def _fresh(source: Source, now_s: float, patience_s: float) -> int:
    return 0 if source.is_quiet(now_s, patience_s) else source.credits
