"""`mesh.locks`: locks on a mesh (docs/do/locks.md).

async with mesh.lock("file:src/lib.rs", scope="repo.app") as lock:
    ...

lock = await mesh.locks.try_take("nightly-report")
if lock is not None:
    async with lock:
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypedDict

import msgspec
from msgspec import Struct

from antiphon.core.families.locks.ops import LOCK, MAX_KEY, TakeBody
from antiphon.core.families.locks.state import Lock as LockState
from antiphon.core.families.locks.state import LockLane, standing
from antiphon.core.policy.locks import lock_time
from antiphon.core.record.subjects import check_kind
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.time_text import time_text
from antiphon.errors import Held, Malformed
from antiphon.runtime.locks.lock_line import LockLine
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.replica.job_pages import EVERYTHING
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.sdk.durations import seconds
from antiphon.sdk.locks.lock import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.runtime.locks.lock_hold import NextTime
    from antiphon.runtime.log.session import Session
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.connection.connection import Connection

    Ttl = Duration | Literal["edit", "task", "phase", "bar"]

DEFAULT_SCOPE: Final = "main"
DEFAULT_TTL: Final = "edit"
WAIT_S: Final = 60.0
MOST_LISTED: Final = 10_000


HELD_LOCKS: Final = LaneList[LockState]("locks", LockLane, LOCK, "holder", name="key")
"""Locks that were not released, the oldest first; the time of a hold may be over."""


class LockStatus(Struct, frozen=True, kw_only=True):
    """A lock that somebody holds, for people."""

    scope: str
    key: str
    node: str
    agent: str
    fence: str
    acquired: str
    """ISO 8601, in UTC; so is the next."""
    expires: str
    """When it ends without a renewal."""
    is_expired: bool
    """Whether that time has passed: then it is free, and its next holder's take will say so."""


class LockOptions(TypedDict, total=False):
    """How a lock is held: `Locks.hold`."""

    scope: str
    ttl: Ttl
    wait: Duration | None
    agent: str


class Locks:
    """The locks of a mesh."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.locks`."""
        self._connection = connection

    def hold(
        self,
        key: str,
        *,
        scope: str = DEFAULT_SCOPE,
        ttl: Ttl = DEFAULT_TTL,
        wait: Duration | None = WAIT_S,
        agent: str = "",
    ) -> Lock:
        """A lock to use with `async with`, as `mesh.lock`: waits for it, keeps it, releases it.

        `ttl` is how long it outlives its holder: a time, `"edit"` (30 s) or `"task"` (5 min);
        `"phase"` and `"bar"` end with one of the mesh's tempo. `wait` is how long to wait for it,
        None without end: then `Held` is raised. `agent` is who holds it, this process's agent
        unless you run several.
        """
        line = self._line(key, scope, agent)
        wait_s = None if wait is None else seconds(wait)
        return Lock(line, self._hold_time(ttl), wait_s, self._connection.keeping)

    async def try_take(
        self, key: str, *, scope: str = DEFAULT_SCOPE, ttl: Ttl = DEFAULT_TTL, agent: str = ""
    ) -> Lock | None:
        """The lock, taken, if it is free right now; None if it is not."""
        try:
            return await self.hold(key, scope=scope, ttl=ttl, wait=0, agent=agent).take()
        except Held:
            return None

    async def adopt(
        self, key: str, *, scope: str = DEFAULT_SCOPE, ttl: Ttl = DEFAULT_TTL, agent: str = ""
    ) -> Lock:
        """The lock that `Lock.pass_to` gave to this agent, taken; `LockLost` if it has none."""
        return await self.hold(key, scope=scope, ttl=ttl, agent=agent).adopt()

    async def break_hold(self, key: str, *, scope: str = DEFAULT_SCOPE, fence: str = "") -> bool:
        """End whoever's hold; False if nobody holds it. With a fence, only the hold that has it.

        Its holder is told by the log, and its block is cancelled. This needs the permission
        `break-lock`.
        """
        line = self._line(key, scope, "")
        with guarded(line.session):
            await line.look()
            verdict = await line.break_hold(fence or None)
        if verdict in {Verdict.ALREADY, Verdict.NO_LOCK}:
            return False
        if verdict is not Verdict.OK:
            raise line.refusal(verdict, "broken")
        return True

    async def list(self, scope: str = "") -> list[LockStatus]:
        """The locks that are held, or were when their time ended; of one scope, or of all.

        Of more than 10,000, parties share the list.
        """
        control = await self._connection.session.sync_control()
        async with self._connection.replica() as replica:
            found = Lists(replica, control).shared(
                HELD_LOCKS, limit=MOST_LISTED, among=(scope,) if scope else EVERYTHING
            )
        return statuses(self._connection.session, (one.state for one in found.rows))

    def _line(self, key: str, scope: str, agent: str) -> LockLine:
        who = agent or self._connection.agent
        check_kind(scope)
        try:
            msgspec.convert({"kind": scope, "key": key, "agent": who, "ttl_ms": 1}, TakeBody)
        except msgspec.ValidationError as problem:
            raise Malformed(
                f"{key[:80]!r} for {who[:80]!r} cannot be locked: {problem}",
                reason="key",
                hint=f"a key has 1 to {MAX_KEY} printable characters, such as 'file:src/lib.rs'",
            ) from problem
        return LockLine(self._connection.session, scope, key, who)

    def _hold_time(self, ttl: Ttl) -> NextTime:
        match ttl:
            case "phase":
                return self._until_boundary("phase")
            case "bar":
                return self._until_boundary("bar")
            case "edit" | "task":
                time = lock_time.fixed(lock_time.EDIT_MS if ttl == "edit" else lock_time.TASK_MS)
            case _:
                time = lock_time.fixed(round(seconds(ttl) * 1000))
        return lambda _after_ms: time

    def _until_boundary(self, which: lock_time.Boundary) -> NextTime:
        def next_time(after_ms: int) -> lock_time.HoldTime:
            session, clock = self._connection.session, self._connection.clock
            return lock_time.until_boundary(
                which,
                clock.meter(),
                clock.phases(),
                session.wall.now_ms(),
                after_ms=after_ms,
                least_ms=session.control.rules.lease_min_ms,
            )

        return next_time


def statuses(session: Session, locks: Iterable[LockState]) -> list[LockStatus]:
    """Locks as people see them, without those whose holder has lost its authority."""
    control, seq, now_ms = session.control, session.confirmed + 1, session.now_by_both_clocks_ms()
    held = (standing(control, lock, seq) for lock in locks)
    return [_status(lock, now_ms) for lock in held if lock is not None and lock.hold is not None]


def _status(lock: LockState, now_ms: int) -> LockStatus:
    hold = lock.hold
    if hold is None:
        raise TypeError("a lock that nobody holds has no status")
    return LockStatus(
        scope=lock.kind,
        key=lock.key,
        node=hold.node,
        agent=hold.agent,
        fence=hold.fence,
        acquired=time_text(hold.taken_ms),
        expires=time_text(hold.deadline_ms),
        is_expired=hold.is_over(now_ms, now_ms),
    )


__all__ = ["Lock", "LockOptions", "LockStatus", "Locks"]
