"""One lock's lane as this process knows it, and what one agent writes there.

Reads the lane, takes the lock, renews it, releases it, passes it on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.families.locks.ops import (
    LOCK,
    BreakBody,
    LockBreak,
    LockRelease,
    LockTake,
    ReleaseBody,
    Successor,
    TakeBody,
)
from antiphon.core.families.locks.state import Hold, LockLane, lock_key, standing
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import LACKS_AUTHORITY, Verdict
from antiphon.core.tempo.time_text import time_text
from antiphon.errors import LostRace, Rejected, Unavailable
from antiphon.runtime.log.writer import Intent, Policy, Written, own_record, write_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.record.op import Op
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.session import Session

WRITE_TIMEOUT_S: Final = 2.0


class LockLine:
    """One lock, for one agent of this process's node."""

    def __init__(self, session: Session, scope: str, key: str, agent: str) -> None:
        """Nothing is read yet."""
        self.session = session
        self.scope = scope
        self.key = key
        self.agent = agent
        self.at = lock_key(scope, key)
        self.subject = LOCK.subject(session.mesh, scope, self.at.name)
        self.lane = LockLane()

    async def look(self) -> None:
        """Read what is on the lane now."""
        if self.lane.tails[0]:
            view = (await self.session.read_on({self.at: self.lane}))[self.at]
        else:
            view = await self.session.enter(self.at)
        if isinstance(view.lane, LockLane) and view.lane.tails >= self.lane.tails:
            self.lane = view.lane

    @property
    def hold(self) -> Hold | None:
        """Who holds it, as far as is known here; its time may be over."""
        lock = standing(self.session.control, self.lane.state, self.session.confirmed + 1)
        return None if lock is None else lock.hold

    @property
    def present(self) -> Hold | None:
        """The same, if its time is not over by this process's idea of both clocks."""
        hold, now_ms = self.hold, self.session.now_by_both_clocks_ms()
        return None if hold is None or hold.is_over(now_ms, now_ms) else hold

    async def take(self, ttl_ms: int, *, fence: str | None = None) -> Verdict:
        """Take it, or renew the hold with that fence.

        A renewal for less time than is left names what is left: the log accepts no shorter one.
        `LOCKED` if somebody holds it: nothing is written then, as far as that was known.
        """

        def body() -> TakeBody:
            least_ms = self._left_ms() if fence is not None else 0
            return TakeBody(
                kind=self.scope,
                key=self.key,
                agent=self.agent,
                ttl_ms=max(ttl_ms, least_ms),
                fence=fence,
            )

        return await self._write(LockTake, body, fence)

    def _left_ms(self) -> int:
        """How long the known hold lasts from the timestamp of the next op on."""
        hold = self.hold
        return 0 if hold is None else hold.deadline_ms - self.session.author.now().wall_ms

    async def release(
        self,
        fence: str,
        to: Successor | None = None,
        before: Callable[[Draft], None] | None = None,
    ) -> Verdict:
        """Release it, or pass it on; `before` is told of each record before it is sent."""
        body = ReleaseBody(kind=self.scope, key=self.key, agent=self.agent, fence=fence, pass_to=to)
        return await self._write(LockRelease, lambda: body, fence, before)

    async def break_hold(self, fence: str | None) -> Verdict:
        """End whoever's hold."""
        body = BreakBody(kind=self.scope, key=self.key, fence=fence)
        return await self._write(LockBreak, lambda: body, None)

    async def _write(
        self,
        op: type[Op],
        body: Callable[[], Struct],
        fence: str | None,
        before: Callable[[Draft], None] | None = None,
    ) -> Verdict:
        """Write behind whatever comes first, as long as it would be accepted there.

        The body is made again for each try, from the lane as it is known then.
        """

        def intent() -> Intent:
            return Intent(op, body(), self.lane)

        def again(now: Written) -> Intent | None:
            self.lane = now.lane
            hold = self.hold
            is_lost = fence is not None and (hold is None or hold.fence != fence)
            return None if is_lost else intent()

        policy = Policy(
            again=again,
            look=own_record,
            foresees=True,
            insists=False,
            timeout_s=WRITE_TIMEOUT_S,
            before=before,
        )
        session = self.session
        try:
            written = await write_one(session, intent(), policy)
            if written.verdict in LACKS_AUTHORITY and not written.seq:
                await session.sync_control()  # what permits it may have been written just now
                written = await write_one(session, intent(), policy)
        except LostRace as lost:
            raise Unavailable(lost.message) from lost
        self.lane = written.lane
        return Verdict.FENCE if written.verdict is None else written.verdict

    def refusal(self, verdict: Verdict, what: str = "taken") -> Rejected:
        """Why it cannot be had, and what to do about it."""
        hint = ""
        if verdict in LACKS_AUTHORITY:
            hint = f"ask for the permission: antiphon delegate NODE --can lock --kind {self.scope}"
        elif verdict is Verdict.LEASE:
            rules = self.session.control.rules
            least_s, most_s = rules.lease_min_ms / 1000, rules.lease_max_ms / 1000
            hint = f"a ttl is between {least_s:g} and {most_s:g} s on this mesh"
        words = f"the lock {self.key} in {self.scope} cannot be {what}: {verdict.in_words}"
        return Rejected(words, reason=verdict.value, hint=hint)

    def holder_words(self) -> str:
        """Who holds it and until when, for people; empty if nobody does."""
        hold = self.present
        if hold is None:
            return ""
        until = time_text(hold.deadline_ms)
        return f"{short_node(hold.node)}/{hold.agent} holds it until {until} unless it renews"
