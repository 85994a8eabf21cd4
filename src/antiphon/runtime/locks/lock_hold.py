"""A hold that is renewed until it is released or lost.

It renews at a third of its time. Without an acknowledged renewal it is lost at two thirds, measured
on a clock that keeps running in suspend. So a holder stops before anybody else can hold the lock,
as long as its machine runs; what a machine does after it stood still is stopped by the fence.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from antiphon.core.families.locks.ops import LockTake
from antiphon.core.record.verdict import Verdict
from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.log.breaker_guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.families.locks.ops import Successor
    from antiphon.core.policy.locks.lock_time import HoldTime
    from antiphon.ports import Hints
    from antiphon.runtime.locks.lock_line import LockLine
    from antiphon.runtime.log.author import Draft

    NextTime = Callable[[int], HoldTime]
    """How long a hold that follows one with this deadline lasts; 0 for a first one."""

RETRY_SHARE: Final = 12
"""A renewal that failed is tried again after this part of the hold's unit."""
SHORTEST_S: Final = 0.001
RENEW_AGAIN_S: Final = 0.5
"""How soon at most, while the engine does not answer: it may be back at any moment."""


class _Peek(Struct):
    author: str
    type: str


_TAKE: Final = LockTake.type_name()
_peek: Final = msgspec.json.Decoder(_Peek).decode


class LockHold:
    """One hold of this agent."""

    def __init__(
        self, line: LockLine, fence: str, time: HoldTime, next_time: NextTime, boot_s: float
    ) -> None:
        """`boot_s` is when the take was drafted; nothing is renewed before `keep`."""
        self.line = line
        self.fence = fence
        self.lost = ""
        """Why it is lost; empty while it is not."""
        self.is_over = False
        """Whether it was released or passed on."""
        self._time = time
        self._next_time = next_time
        self._boot_s = boot_s
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def deadline_ms(self) -> int:
        """Until when it is held without a further renewal."""
        hold = self.line.hold
        return hold.deadline_ms if hold is not None and hold.fence == self.fence else 0

    @property
    def is_held(self) -> bool:
        """Whether it is certain that nobody else can hold it now."""
        return not (self.is_over or self.lost or self._stop_left_s <= 0)

    def _left_s(self, after_ms: int) -> float:
        """Time until so long after the last acknowledged take or renewal."""
        return self._boot_s + after_ms / 1000 - self.line.session.wall.boot_s()

    @property
    def _stop_left_s(self) -> float:
        """Time until it has to stop without a renewal."""
        return self._left_s(self._time.stop_after_ms) - self._behind_s

    @property
    def _behind_s(self) -> float:
        """How much sooner the hold ends because this machine's clock is behind the log's.

        Its deadline is this clock's time and its ttl; others may take the lock when the log's clock
        has passed that.
        """
        if not self.deadline_ms:
            return 0.0
        least_ms = self.line.session.author.mesh_time.now().least_ms
        ends_s = (self.deadline_ms - least_ms) / 1000
        return max(self._left_s(self._time.ttl_ms) - ends_s, 0.0)

    async def keep(self) -> None:
        """Renew until it is released or lost; then return."""
        session = self.line.session
        with session.log.hints(self._told) as hints:
            hints.add(self.line.subject)
            retry_s = 0.0
            while not self.is_over and not self.lost:
                if self._stop_left_s <= 0:
                    clock = self.line.session.author.mesh_time.fault(self._time.unit_ms // 3)
                    self._lose(clock or "no renewal was acknowledged in time")
                    return
                due_s = max(self._renew_left_s, retry_s)
                if due_s > 0:
                    # Less than a clock can tell apart would be waited for without end.
                    if await self._heard_within(max(min(due_s, self._stop_left_s), SHORTEST_S)):
                        await self._look(hints)
                    retry_s = 0.0
                    continue
                retry_s = await self._renew()

    @property
    def _renew_left_s(self) -> float:
        """Time until it is to be renewed, after a pause even if the clock is far behind."""
        soonest_s = self._left_s(self._time.unit_ms // RETRY_SHARE)
        return max(self._left_s(self._time.renew_after_ms) - self._behind_s, soonest_s)

    async def _renew(self) -> float:
        """Renew now; how long to wait before another try."""
        try:
            async with self._writing:
                if self.is_over:
                    return 0.0
                time, sent_s = self._next_time(self.deadline_ms), self.line.session.wall.boot_s()
                left_s = max(self._stop_left_s, 0.001)
                async with asyncio.timeout(left_s):
                    verdict = await self.line.take(time.ttl_ms, fence=self.fence)
        except (Unavailable, TimeoutError):
            return min(self._time.unit_ms / 1000 / RETRY_SHARE, RENEW_AGAIN_S)
        except AntiphonError as problem:
            self._lose(problem.message)
            return 0.0
        if verdict is Verdict.OK:
            self._time, self._boot_s = time, sent_s
        elif verdict is Verdict.STALE:
            return self._time.unit_ms / 1000 / RETRY_SHARE
        else:
            self._lose(f"its renewal was refused: {verdict.in_words}")
        return 0.0

    async def _look(self, hints: Hints) -> None:
        """Somebody else wrote on the lane: see whether the hold still stands."""
        try:
            hints.check()
            async with self._writing:
                await self.line.look()
        except Unavailable:
            return
        hold = self.line.hold
        if not self.is_over and (hold is None or hold.fence != self.fence):
            self._lose("somebody else ended the hold")

    async def _heard_within(self, bound_s: float) -> bool:
        try:
            async with asyncio.timeout(bound_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def _told(self, subject: str, payload: bytes) -> None:
        if not subject:
            self._news.set()
            return
        try:
            said = _peek(payload[: payload.index(b"\n")])
        except (*UNREADABLE, ValueError):
            return
        is_renewal = (said.author, said.type) == (self.line.session.author.did, _TAKE)
        if not is_renewal and not self.is_over:
            self._news.set()

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why

    async def release(
        self, to: Successor | None = None, before: Callable[[Draft], None] | None = None
    ) -> Verdict:
        """Release it, or pass it on; a hold that is lost is left alone."""
        if self.lost:
            return Verdict.FENCE
        async with self._writing:
            if self.is_over:
                return Verdict.ALREADY
            with guarded(self.line.session):
                verdict: Any = await self.line.release(self.fence, to, before)
            if to is None or verdict is Verdict.OK:
                self.is_over = True
                self._news.set()
            if verdict in {Verdict.FENCE, Verdict.NOT_CLAIMER}:
                self._lose("somebody else ended the hold")
            return Verdict(verdict)


async def adopt(line: LockLine, next_time: NextTime) -> LockHold | None:
    """The hold that was passed to this agent, renewed by its own right; None if there is none."""
    with guarded(line.session):
        await line.look()
        hold, time, boot_s = line.present, next_time(0), line.session.wall.boot_s()
        if hold is None or not hold.is_of(line.session.author.did, line.agent):
            return None
        verdict = await line.take(time.ttl_ms, fence=hold.fence)
    return LockHold(line, hold.fence, time, next_time, boot_s) if verdict is Verdict.OK else None
