"""Waits until a lock is free and it is this waiter's turn, then takes it (spec §10).

A waiter reads the lane when it comes, and after that only when the log's hints say that something
was written there, when a delegation was revoked, or when the hold's time is over. While nothing
happens it makes no read. A hint can be lost: then it looks again when the hold's time is over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.policy.locks.lock_turns import REFRESH_S
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.errors import CircuitOpen, EngineDenied, Held, Unavailable
from antiphon.runtime.locks.lock_hold import LockHold
from antiphon.runtime.locks.lock_queue import LockQueue
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.services import beside

if TYPE_CHECKING:
    from antiphon.runtime.locks.lock_hold import NextTime
    from antiphon.runtime.locks.lock_line import LockLine

DEAF_S: Final = 5.0
"""How often a waiter looks that may not hear the lane."""
RETRY_S: Final = 0.1
"""How soon to try again where the engine's clock is a little behind ours."""
_NOT_YET: Final = frozenset({Verdict.LOCKED, Verdict.OK, Verdict.STALE})
"""`STALE`: the last holder's clock is ahead of ours by less than the drift, and soon no longer."""
REVOCATIONS: Final = "revoke.>"


class LockWait:
    """One wait for one lock."""

    def __init__(self, line: LockLine, next_time: NextTime) -> None:
        """Nothing is read before `take`."""
        self._line = line
        self._next_time = next_time
        self._news = asyncio.Event()
        self._is_touched = False
        self._is_control_touched = False
        self._away: Unavailable | None = None
        """Why the engine could not be asked, since it last answered."""
        self._free_since_s: float | None = None
        self._not_before_s = 0.0

    async def take(self, wait_s: float | None) -> LockHold:
        """The hold; `Held` if it did not come within `wait_s` seconds (None: however long).

        `CircuitOpen` at once if the engine has not answered for a while; one that stops to answer
        later is waited for, and `Unavailable` if it did not answer again in time.
        """
        with self._line.session.log.hints(self._told) as hints:
            is_heard = hints.add(self._line.subject)
            hints.add(subjects.control(self._line.session.mesh, REVOCATIONS))
            is_patient = wait_s is None or wait_s > 0
            try:
                with guarded(self._line.session):
                    await self._line.look()
                    hold = await self._try()
                if hold is not None:
                    return hold
            except (EngineDenied, CircuitOpen):
                raise
            except Unavailable as away:
                if not is_patient:
                    raise
                self._away, self._is_touched = away, True
            if not is_patient:
                raise self._held()
            try:
                async with asyncio.timeout(wait_s):
                    return await self._wait(is_heard=is_heard)
            except TimeoutError:
                if self._away is not None:
                    raise self._not_asked(self._away, f"{wait_s:g} s") from None
                raise self._held(f" after {wait_s:g} s") from None

    def _not_asked(self, away: Unavailable, within: str) -> Unavailable:
        words = f"the lock {self._line.key} could not be taken within {within}: {away.message}"
        return Unavailable(words, hint=away.hint)

    def _held(self, when: str = "") -> Held:
        line = self._line
        words = f"the lock {line.key} in {line.scope} was not free{when}"
        holder = line.holder_words()
        return Held(
            f"{words}: {holder}" if holder else words,
            hint="wait longer, or see who holds it: antiphon lock ls",
        )

    async def _try(self) -> LockHold | None:
        """Take it if it is free; None if it is not."""
        line, time = self._line, self._next_time(0)
        boot_s = line.session.wall.boot_s()
        verdict = await line.take(time.ttl_ms)
        if verdict is Verdict.OK and line.hold is not None:
            return LockHold(line, line.hold.fence, time, self._next_time, boot_s)
        if verdict in _NOT_YET:
            return None
        raise line.refusal(verdict)

    async def _wait(self, *, is_heard: bool) -> LockHold:
        queue = LockQueue(self._line, self._news.set)
        async with beside(queue.run()):
            try:
                return await self._wait_in(queue, is_heard=is_heard)
            finally:
                await queue.say(leaves=True)

    async def _wait_in(self, queue: LockQueue, *, is_heard: bool) -> LockHold:
        attempt = 0
        while True:
            try:
                if await self._look():
                    self._away = None
                pause_s = self._pause_s(queue)
                if pause_s <= 0:
                    hold = await self._try()
                    if hold is not None:
                        return hold
                    # It looked free and was not: the engine's clock decides, too.
                    self._not_before_s = self._now_s() + RETRY_S
                    continue
                await self._until_news(pause_s, is_heard=is_heard)
                attempt = 0
            except EngineDenied:
                raise
            except Unavailable as away:
                self._away, self._is_touched = away, True
                await self._line.session.pause(attempt)
                attempt = min(attempt + 1, 6)

    async def _look(self) -> bool:
        """Read what the hints were about; whether there was anything to read."""
        if self._is_control_touched:
            self._is_control_touched = False
            await self._line.session.sync_control()
        if not self._is_touched:
            return False
        self._is_touched = False
        try:
            await self._line.look()
        except BaseException:
            self._is_touched = True
            raise
        return True

    def _pause_s(self, queue: LockQueue) -> float:
        """How long until this waiter may try, as far as is known."""
        now_s, session = self._now_s(), self._line.session
        present = self._line.present
        if present is not None:
            self._free_since_s = None
            left_ms = present.deadline_ms - session.now_by_both_clocks_ms()
            return left_ms / 1000 + RETRY_S / 10
        if self._free_since_s is None:
            self._free_since_s = now_s
        window_s = session.control.rules.claim_window_ms / 1000
        turn_s = self._free_since_s + queue.rank() * window_s
        # Those before it may fall silent, so it counts them again.
        return min(max(turn_s, self._not_before_s) - now_s, REFRESH_S)

    async def _until_news(self, bound_s: float, *, is_heard: bool) -> None:
        try:
            async with asyncio.timeout(bound_s if is_heard else min(bound_s, DEAF_S)):
                await self._news.wait()
            self._news.clear()
        except TimeoutError:
            # The hold's time is over, or this waiter cannot hear: see what is there.
            self._is_touched = self._is_touched or not is_heard or self._free_since_s is None

    def _told(self, subject: str, _payload: bytes) -> None:
        if not subject or subject == self._line.subject:
            self._is_touched = True
        if not subject or subject != self._line.subject:
            self._is_control_touched = True
        self._news.set()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()
