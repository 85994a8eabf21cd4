"""Submits many jobs: they are signed, sent and read back in groups.

A few groups are in flight at the same time, however many jobs there are. Jobs are sent in the order
of the list; the engine decides in which order it stores what is in flight together, except that a
job is sent only after those of the list that it waits for are stored: they have to be older on the
log (spec §7.3). What is out of the ordinary (the job exists, a verdict other than expected) is left
to `submission`, job by job.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import EMPTY
from antiphon.core.manifest import job_id
from antiphon.core.policy.write_pace import FORGIVEN_S, SHARED_RECORDS, WINDOW_MS
from antiphon.core.record.verdict import Verdict
from antiphon.errors import AntiphonError, LostRace, PartlySubmitted, Unavailable
from antiphon.ports import LANES_AT_ONCE
from antiphon.runtime import tracing
from antiphon.runtime.caller.predecessor_check import check_predecessors
from antiphon.runtime.caller.submission import Submitted, labelled, submit
from antiphon.runtime.log.breaker_guard import guarded
from antiphon.runtime.log.writer import (
    Begun,
    Intent,
    Policy,
    send_together,
    sign_together,
    unread,
    write_one,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.log.author import Draft
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session

GROUPS_IN_FLIGHT: Final = 4
TOGETHER: Final = 64
"""Jobs of one group: together few enough to be answered in time by a slow disk."""
_POLICY: Final = Policy(foresees=True, look=unread)
"""A job that turns out to exist is left to `submission`; verdicts are read later, many at once."""
MOST_LOSSES: Final = 64
"""How often groups of one list may meet a lost connection before it counts as a failure."""
AFTER_PAUSE_S: Final = 1.25 * TOGETHER / SHARED_RECORDS * WINDOW_MS / 1000
"""Between groups of a node that was paused lately: so many records nobody minds."""
LOSS_LOOKS: Final = 20
LOSS_LOOK_S: Final = 0.1
"""How often, and how long apart, to look whether the connection is back or this node is paused."""


class _Sent(Struct, frozen=True):
    position: int
    key: LaneKey
    op_id: str
    seq: int


async def submit_many(session: Session, bodies: Sequence[ScheduleBody]) -> list[Submitted]:
    """Schedule jobs, each as `submission.submit` does; what became of each, in their order.

    The first failure ends it: what is in flight then is still waited for. It is raised as it is
    if nothing was submitted, and inside `PartlySubmitted` otherwise.
    """
    if session.confirmed == 0 and bodies:
        await session.sync_control()
    if any(one.quorum is not None for one in bodies):
        from antiphon.runtime.caller.quorum_check import check_quorums

        await check_quorums(session, bodies)
    await check_predecessors(session, bodies)
    bulk = _Bulk(session, [tracing.traced(one) for one in bodies])
    async with asyncio.TaskGroup() as tasks:
        for _ in range(bulk.appending):
            tasks.create_task(bulk.append_in_turn())
        await bulk.read_back()
    if bulk.problem is not None:
        raise _failure(bulk, *bulk.problem)
    return [one for one in bulk.found if one is not None]


class _Bulk:
    """One list of jobs on its way to the log."""

    def __init__(self, session: Session, bodies: Sequence[ScheduleBody]) -> None:
        self.bodies = bodies
        self.found: list[Submitted | None] = [None] * len(bodies)
        self.problem: tuple[int, AntiphonError] | None = None
        self._session = session
        self._turns: asyncio.Queue[int | None] = asyncio.Queue()
        """Positions that may be sent; None: there are no more."""
        self._left = len(bodies)
        self._unmet: dict[int, int] = {}
        self._successors: dict[int, list[int]] = {}
        self.appending = min(GROUPS_IN_FLIGHT, len(bodies))
        """Tasks that append."""
        self._begin()
        self._sent: deque[_Sent] = deque()
        self._losses = MOST_LOSSES
        self._next_s = 0.0
        """When the next group may be sent, if this node was paused lately (seconds since boot)."""
        self._news = asyncio.Event()

    def _begin(self) -> None:
        """Line up what waits for no other job of the list."""
        waits = any(body.predecessors for body in self.bodies)
        keys = [(one.kind, job_id(one.manifest)) for one in self.bodies] if waits else []
        positions = {key: position for position, key in reversed([*enumerate(keys)])}
        for position, body in enumerate(self.bodies):
            before = {positions.get(key, position) for key in body.predecessors} if waits else ()
            unmet = [one for one in before if one < position]
            for one in unmet:
                self._successors.setdefault(one, []).append(position)
            if unmet:
                self._unmet[position] = len(unmet)
            else:
                self._turns.put_nowait(position)

    def _stored(self, position: int) -> None:
        """A job is on the log: what waits for nothing else is next."""
        self._left -= 1
        for one in self._successors.pop(position, ()):
            self._unmet[one] -= 1
            if not self._unmet[one]:
                self._turns.put_nowait(one)
        if not self._left:
            self._stop()

    def _stop(self) -> None:
        for _ in range(self.appending):
            self._turns.put_nowait(None)

    async def append_in_turn(self) -> None:
        """Append one group after the other, until there are no more or a job has failed."""
        try:
            while self.problem is None:
                position = await self._turns.get()
                if position is None or self.problem is not None:
                    break
                await self._slowly()
                group = [position, *self._ready(TOGETHER - 1)]
                try:
                    await self._append(group)
                except AntiphonError as problem:
                    if await self._has_passed(problem):
                        for one in group:
                            self._turns.put_nowait(one)
                    else:
                        self._fail(position, problem)
        finally:
            self.appending -= 1
            self._news.set()

    async def _has_passed(self, problem: AntiphonError) -> bool:
        """Whether the problem was a pause of this node, for writing much, that has ended by now.

        The connection ends before it is told why: so a lost one is waited for, too, for a moment.
        """
        if not isinstance(problem, Unavailable) or self._is_up() or not self._losses:
            return False
        self._losses -= 1
        for _ in range(LOSS_LOOKS):
            if self._is_up() or self._session.engine.paused_s:
                return await self._session.admitted()
            await asyncio.sleep(LOSS_LOOK_S)
        return False

    async def _slowly(self) -> None:
        """Wait for the next turn, if this node was paused for writing much.

        The next pause would be longer.
        """
        now_s = self._session.wall.boot_s()
        if now_s - self._session.last_pause_s < FORGIVEN_S:
            turn_s = max(self._next_s, now_s)
            self._next_s = turn_s + AFTER_PAUSE_S
            await asyncio.sleep(turn_s - now_s)

    def _is_up(self) -> bool:
        return self._session.engine.connected

    def _ready(self, most: int) -> list[int]:
        """More positions that may be sent now."""
        found: list[int] = []
        while len(found) < most and not self._turns.empty():
            position = self._turns.get_nowait()
            if position is None:
                self._turns.put_nowait(None)  # for the task whose sign to stop it is
                break
            found.append(position)
        return found

    async def _append(self, group: list[int]) -> None:
        """Send these jobs together; those that it does not settle, one by one."""
        session = self._session
        drafts: dict[int, Draft] = {}
        left: list[int] = []
        wanted = [(self._intent(position), _POLICY) for position in group]
        for position, begun in zip(group, sign_together(session, wanted), strict=True):
            if begun.draft is not None:
                drafts[position] = begun.draft
            elif begun.written is not None and begun.written.problem is not None:
                self._fail(position, begun.written.problem)
                break  # what comes after it in the list is not sent
            else:
                left.append(position)
        with guarded(session):
            sent = await send_together(session, [*drafts.values()])
        unsettled = [self._alone(position) for position in left]
        for (position, draft), begun in zip(drafts.items(), sent, strict=True):
            if begun.told is None:
                self._note(position, draft, begun.seq)
            else:
                unsettled.append(self._resolve(position, draft, begun))
        if unsettled:
            await asyncio.gather(*unsettled)

    def _body(self, position: int) -> ScheduleBody:
        return labelled(self._session, self.bodies[position])

    def _intent(self, position: int) -> Intent:
        return Intent(JobSchedule, self._body(position), EMPTY)

    async def _resolve(self, position: int, draft: Draft, begun: Begun) -> None:
        """Find out what became of a draft, and send it again if it was not stored."""
        try:
            with guarded(self._session):
                written = await write_one(self._session, self._intent(position), _POLICY, begun)
        except LostRace:
            await self._alone(position)  # the job exists, or something else is on its subject
        except AntiphonError as problem:
            self._fail(position, problem)
        else:
            self._note(position, draft, written.seq)

    def _note(self, position: int, draft: Draft, seq: int) -> None:
        """A draft was stored; its verdict is read later."""
        place = draft.opened.place
        if place is not None:
            self._sent.append(_Sent(position, place.key, draft.op_id, seq))
            self._news.set()
        self._stored(position)

    async def _alone(self, position: int) -> None:
        try:
            body = self._body(position)
            self.found[position] = await submit(self._session, body)
        except AntiphonError as problem:
            self._fail(position, problem)
        else:
            self._stored(position)

    async def read_back(self) -> None:
        """Read the verdicts on what was stored, many at a time, until everything is."""
        while self.appending or self._sent:
            while self.appending and len(self._sent) < LANES_AT_ONCE:
                self._news.clear()
                await self._news.wait()
            count = min(len(self._sent), LANES_AT_ONCE)
            stored = [self._sent.popleft() for _ in range(count)]
            try:
                await self._judge(stored)
            except AntiphonError as problem:
                if await self._has_passed(problem):
                    self._sent.extendleft(reversed(stored))
                else:
                    self._fail(stored[0].position, problem)

    async def _judge(self, stored: list[_Sent]) -> None:
        asked = {one.key: one.seq for one in stored}
        views = await self._session.read_lanes(asked, no_further=True)
        for one in stored:
            key, view = one.key, cast("JobView", views[one.key])
            if view.verdict_of(one.op_id) is Verdict.OK:
                found = Submitted(key.kind, key.name, one.seq, is_new=True, lane=view.lane)
                self.found[one.position] = found
                continue
            body = self.bodies[one.position]
            self.found[one.position] = await submit(self._session, body)

    def _fail(self, position: int, problem: AntiphonError) -> None:
        if self.problem is None or position < self.problem[0]:
            self.problem = (position, problem)
        self._stop()


def _failure(bulk: _Bulk, position: int, problem: AntiphonError) -> AntiphonError:
    there = [one for one in bulk.found if one is not None]
    if not there:
        return problem
    kind, total = bulk.bodies[position].kind, len(bulk.bodies)
    failure = PartlySubmitted(
        f"job {position + 1} of {total} ({kind}) was not submitted: {problem.message}; "
        f"{len(there)} of them were",
        position=position,
        submitted=there,
        hint=problem.hint,
    )
    failure.__cause__ = problem
    return failure
