"""`Lock`: what `mesh.lock(...)` gives you (docs/do/locks.md).

    async with mesh.lock("file:src/lib.rs", scope="repo.app") as lock:
        FencedFile("src/lib.rs").write_text(text, fence=lock.fence)

The lock is renewed while the block runs. If it is lost, the block is cancelled and `LockLost` is
raised in its place. What the block has already sent somewhere cannot be taken back: give the fence
to whatever stores it, and let that refuse a lower one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.families.locks.ops import ReleaseBody, Successor
from antiphon.core.record.ids import split_address
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, LockLost, Misconfigured, Unavailable, is_away
from antiphon.runtime.locks.lock_wait import LockWait
from antiphon.runtime.outbox.lane_writes import form_of
from antiphon.runtime.outbox.outbox_item import Form, Release
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from antiphon.runtime.locks.lock_hold import LockHold, NextTime
    from antiphon.runtime.locks.lock_line import LockLine
    from antiphon.sdk.connection.connection_outbox import ConnectionOutbox

NO_TAKE: Final = (
    "a lock cannot be taken without a connection: only the log says who has it, so taking it does"
    " not wait in the outbox"
)
_log = LazyLogger(__name__)


class Lock:
    """One lock, for one holder; made by `Mesh.lock`. It can be taken again after its release."""

    def __init__(
        self,
        line: LockLine,
        next_time: NextTime,
        wait_s: float | None,
        outbox: ConnectionOutbox | None = None,
    ) -> None:
        """Nothing is taken before `async with` or `take`.

        The outbox keeps a release that cannot be written.
        """
        self._outbox = outbox
        self._line = line
        self._next_time = next_time
        self._wait_s = wait_s
        self._hold: LockHold | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._block: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._has_cancelled = False

    @property
    def key(self) -> str:
        """What is locked."""
        return self._line.key

    @property
    def scope(self) -> str:
        """The scope of the key: the two are unique together."""
        return self._line.scope

    @property
    def fence(self) -> str:
        """Sixteen hex digits that are greater for every later holder; text order is their order."""
        return self._held.fence

    @property
    def deadline_ms(self) -> int:
        """Until when it is held without a further renewal, in Unix milliseconds."""
        return self._held.deadline_ms

    @property
    def is_held(self) -> bool:
        """Whether nobody else can hold it at this moment, by this machine's clock."""
        return self._hold is not None and self._hold.is_held

    @property
    def _held(self) -> LockHold:
        if self._hold is None:
            raise Misconfigured(
                f"the lock {self.key} is not taken", hint="use it inside 'async with mesh.lock(…)'"
            )
        return self._hold

    def check(self) -> None:
        """`LockLost` if it is no longer certain that this agent holds it."""
        if not self._held.is_held:
            raise self._lost()

    def _lost(self) -> LockLost:
        why = self._held.lost or ("it was released" if self._held.is_over else "its time is over")
        return LockLost(
            f"the lock {self.key} in {self.scope} was lost: {why}",
            hint="stop what it protects, take it again and look at what changed",
        )

    # --- taking and releasing ---------------------------------------------------------------------

    async def take(self) -> Self:
        """Wait for it and take it; `Held` if it is not free in time."""
        if self._hold is not None:
            raise Misconfigured(
                f"the lock {self.key} is already taken by this object",
                hint="make another with mesh.lock(…); they exclude each other",
            )
        try:
            self._hold = await LockWait(self._line, self._next_time).take(self._wait_s)
        except Unavailable as problem:
            if self._outbox is not None and is_away(problem):
                problem.hint = f"{NO_TAKE}; {problem.hint}" if problem.hint else NO_TAKE
            raise
        self._keeper = asyncio.ensure_future(self._keep(self._hold))
        return self

    async def _keep(self, hold: LockHold) -> None:
        await hold.keep()
        if hold.lost and self._block is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._block.cancel()

    async def release(self) -> None:
        """Release it; does nothing twice, and nothing if it was lost.

        If the engine does not answer, the lock ends with its time. Where writes are kept
        (docs/do/offline.md), it is released as soon as there is a connection.
        """
        hold, keeper = self._hold, self._keeper
        if hold is None:
            return
        sent: list[Form] = []
        try:
            await hold.release(before=lambda draft: sent.append(form_of(draft)))
        except AntiphonError as problem:
            if self._outbox is not None and is_away(problem):
                self._keep_release(self._outbox, hold, sent)
            else:
                _log.warning("lock_not_released", key=self.key, problem=problem.message)
        finally:
            hold.is_over = True
            self._keeper = None
            if keeper is not None:
                keeper.cancel()
                await asyncio.wait([keeper])

    def _keep_release(self, outbox: ConnectionOutbox, hold: LockHold, sent: list[Form]) -> None:
        line = self._line
        body = ReleaseBody(kind=line.scope, key=line.key, agent=line.agent, fence=hold.fence)
        try:
            outbox.keep_lane_write(Release(body), sent)
        except AntiphonError as problem:
            _log.warning("lock_not_released", key=self.key, problem=problem.message)

    async def pass_to(self, address: str) -> None:
        """Make another agent its holder, `<node id>/<agent>`, in one op and with a new fence.

        The other agent has it from that record on, and keeps it with `mesh.locks.adopt`.
        """
        node, agent = split_address(address)
        to = Successor(node=node, agent=agent, ttl_ms=self._next_time(0).ttl_ms)
        verdict = await self._held.release(to)
        if verdict is not Verdict.OK:
            raise self._line.refusal(verdict, "passed on")

    async def adopt(self) -> Self:
        """Go on with a hold that another agent passed to this one; `LockLost` if there is none."""
        from antiphon.runtime.locks.lock_hold import adopt

        self._hold = await adopt(self._line, self._next_time)
        if self._hold is None:
            raise LockLost(
                f"the lock {self.key} in {self.scope} was not passed to {self._line.agent}",
                hint="'antiphon lock ls' shows who holds it",
            )
        self._keeper = asyncio.ensure_future(self._keep(self._hold))
        return self

    async def __aenter__(self) -> Self:
        if self._hold is None:
            await self.take()
        self.check()
        self._block = asyncio.current_task()
        self._cancelling = self._block.cancelling() if self._block is not None else 0
        return self

    async def __aexit__(
        self,
        raised: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        hold, block = self._held, self._block
        self._block = None
        try:
            await asyncio.shield(asyncio.ensure_future(self.release()))
            lost = self._lost() if hold.lost else None
        finally:
            self._hold = None
        if self._has_cancelled and block is not None:
            self._has_cancelled = False
            is_ours_alone = block.uncancel() <= self._cancelling
            if raised is asyncio.CancelledError and not is_ours_alone:
                return
        if lost is not None and (problem is None or raised is asyncio.CancelledError):
            raise lost from problem
