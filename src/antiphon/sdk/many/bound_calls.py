"""Many jobs at once: submit them, and take their results as they come.

No job has a task of its own here, nor a read. `runtime.caller` does the work: `bulk_submission`
writes, `ends` waits.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeVar, cast, overload

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.state import job_key
from antiphon.core.manifest import NonceInput, job_id
from antiphon.errors import (
    AntiphonError,
    Misconfigured,
    NobodyAnswers,
    PartlySubmitted,
    Unavailable,
    is_away,
)
from antiphon.ports import LANES_AT_ONCE, SUBJECTS_AT_ONCE
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.caller.ends import Ends
from antiphon.runtime.caller.submission import SECOND_LOOK, no_job
from antiphon.runtime.executors.handler_call import inline_arguments, keep_arguments
from antiphon.runtime.values.signature import plain_call
from antiphon.sdk.call_options import Scheduling, fresh_nonce
from antiphon.sdk.durations import seconds
from antiphon.sdk.handle import JobHandle, ResultReader, StreamHandle
from antiphon.sdk.job_wait import DIAGNOSIS_AFTER_S, LAST_LOOK_S, diagnosed

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Mapping,
        Sequence,
    )
    from datetime import timedelta

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.caller.submission import Ended, Submitted
    from antiphon.runtime.log.lane_reader import JobView
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.outbox.outbox_item import OutboxItem
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.call_options import CallOptions
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.connection.connection_outbox import ConnectionOutbox

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)

OPEN_AT_ONCE: Final = 1_000
"""Jobs that `map` keeps open if it is told no other limit."""
KINDS_ASKED: Final = 8
"""Kinds that are looked into when nothing of them ends."""


class Call(Struct, Generic[R_co], frozen=True):
    """A job that is not submitted yet: `Task.bind` makes it, `Mesh.submit` submits it."""

    kind: str
    text: bytes
    """Its arguments."""
    scheduling: Scheduling
    signature: CallSignature | None = None
    """The task's; None: its result is plain JSON."""

    @classmethod
    def of(
        cls,
        kind: str,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        options: CallOptions | None = None,
    ) -> Call[Any]:
        """A call of a task by its kind: plain JSON both ways."""
        return Call(kind, plain_call(args, kwargs), Scheduling.of(options or {}))

    def with_values(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Call[Any]:
        """The same with plain values, some of which may be named like an option of `bind`."""
        return replace(self, text=plain_call(args, kwargs))

    def schedule(self, where: Mapping[str, Any], *, nonce: NonceInput, now_ms: int) -> ScheduleBody:
        """The body of the op that submits it, given where its arguments are."""
        job = self.scheduling.handler_call(self.kind, where, nonce)
        return self.scheduling.body(self.kind, job, now_ms=now_ms)


class OfOne(Protocol[A_contra, R_co]):
    """A task that takes one argument: what `Task.map` and `Task.submit_many` can be used on."""

    async def submit(self, item: A_contra, /) -> JobHandle[R_co]:
        """Submit it with this argument."""


class Caller(Struct, frozen=True):
    """What submits calls: how they become records, and their jobs handles."""

    connection: Connection

    @property
    def session(self) -> Session:
        """The session that reads and writes the log."""
        return self.connection.session

    async def body_of(self, call: Call[Any]) -> ScheduleBody:
        """What submits a call; large arguments are stored."""
        where = inline_arguments(call.text)
        where = where or await keep_arguments(call.text, self.connection.artifacts)
        nonce = fresh_nonce(self.session.entropy)
        return call.schedule(where, nonce=nonce, now_ms=self.session.wall.now_ms())

    def handle_of(
        self, submitted: Submitted, signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        """The handle of a job that was submitted."""
        reader = ResultReader(signature, lambda: self.connection.artifacts)
        made = StreamHandle if signature is not None and signature.is_stream else JobHandle
        return made.of(self.session, submitted, reader)

    async def submit(self, call: Call[R]) -> JobHandle[R]:
        """Submit one call."""
        body = await self.body_of(call)
        if self.outbox is not None:
            return await self.submit_or_keep(self.outbox, body, call.signature)
        return self.handle_of(await submission.submit(self.session, body), call.signature)

    async def submit_body(self, body: ScheduleBody) -> JobHandle[Any]:
        """Submit one job whose manifest is given."""
        if self.outbox is not None:
            return await self.submit_or_keep(self.outbox, body)
        return self.handle_of(await submission.submit(self.session, body))

    @property
    def outbox(self) -> ConnectionOutbox | None:
        """What keeps jobs while the engine cannot be reached, if that was asked for."""
        return self.connection.keeping

    async def submit_or_keep(
        self, outbox: ConnectionOutbox, body: ScheduleBody, signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        """Submit one job, or keep it; the handle says which."""
        found = await outbox.write_or_keep(
            lambda: submission.submit(self.session, body),
            lambda sent_ms: outbox.keep_submit(body, sent_ms=sent_ms),
            frozenset(body.predecessors),
            body,
        )
        return self.handle_of_either(found, signature)

    def handle_of_either(
        self, found: Submitted | OutboxItem, signature: CallSignature | None
    ) -> JobHandle[Any]:
        """The handle of a job that was submitted, or waits."""
        if isinstance(found, submission.Submitted):
            return self.handle_of(found, signature)
        item, outbox = found, self.outbox
        kind, job = item.job() or ("", "")

        async def committed() -> Session:
            if outbox is None:
                raise TypeError("what waits is in an outbox")
            await outbox.committed(item)
            return self.session

        reader = ResultReader(signature, lambda: self.connection.artifacts)
        made = StreamHandle if signature is not None and signature.is_stream else JobHandle
        return made.tentative(self.session, (kind, job), reader, committed)

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Submit jobs; their handles, in the same order.

        Every call is checked before the first is written. `PartlySubmitted` if one could not be
        submitted after others were; where jobs are kept (docs/do/offline.md), what the engine did
        not answer waits instead.
        """
        made = [(call, await self.body_of(call)) for call in calls]
        return await self._submit(made, self.submit_bodies, first=0)

    async def submit_bodies(
        self, bodies: Sequence[ScheduleBody]
    ) -> Sequence[Submitted | OutboxItem]:
        """Submit jobs, behind what waits in the outbox: they may come after that."""
        outbox = self.outbox
        if outbox is None:
            return await submit_many(self.session, bodies)
        found: dict[LaneKey, Submitted] = {}

        async def write() -> Sequence[Submitted | OutboxItem]:
            try:
                return await submit_many(self.session, bodies)
            except PartlySubmitted as partly:
                if isinstance(partly.__cause__, Unavailable) and is_away(partly.__cause__):
                    found.update({job_key(one.kind, one.id): one for one in partly.submitted})
                    raise partly.__cause__ from partly
                raise

        def keep(sent_ms: int) -> Sequence[Submitted | OutboxItem]:
            left = [one for one in bodies if _key(one) not in found]
            kept = iter(outbox.keep_submits(left, sent_ms=sent_ms))
            return [found.get(_key(one)) or next(kept) for one in bodies]

        own = {(one.kind, job_id(one.manifest)) for one in bodies}
        needs = frozenset(key for one in bodies for key in one.predecessors) - own
        return await outbox.write_or_keep(write, keep, needs, bodies)

    async def map(
        self, calls: Iterable[Call[R]], *, limit: int | None
    ) -> AsyncGenerator[JobHandle[R]]:
        """Submit jobs while fewer than `limit` are open; each as it ends, in that order."""
        most = OPEN_AT_ONCE if limit is None else limit
        if most < 1:
            raise Misconfigured(f"a limit of {most} lets no job begin", hint="use 1 or more")
        left, index = iter(calls), 0
        waiting: dict[LaneKey, list[JobHandle[R]]] = {}
        unanswered = _Unanswered(self.session)
        with Ends(self.session) as ends:
            while True:
                room = min(most - len(waiting), LANES_AT_ONCE)
                made = [(call, await self.body_of(call)) for call in islice(left, room)]
                for _, body in made:  # heard from the beginning, so nothing has to be looked for
                    ends.add(body.kind, job_id(body.manifest), is_new=True)
                try:
                    begun = await self._submit(made, self._now, first=index) if made else []
                except PartlySubmitted as problem:
                    problem.submitted += [one for same in waiting.values() for one in same]
                    raise
                index += len(begun)
                for handle in begun:
                    waiting.setdefault(job_key(handle.kind, handle.id), []).append(handle)
                    is_new, lane = handle.is_new, handle.known_lane
                    ends.add(handle.kind, handle.id, is_new=is_new, lane=lane)
                if not waiting:
                    return
                if len(begun) == room and len(waiting) < most:
                    continue  # there is room for more
                for ended in await unanswered.next(ends, waiting):
                    for handle in _take(waiting, ended):
                        yield handle

    async def _now(self, bodies: Sequence[ScheduleBody]) -> list[Submitted]:
        """Submit jobs whose ends are waited for: they are not kept."""
        if self.outbox is not None:
            await self.outbox.send()
        return await submit_many(self.session, bodies)

    async def _submit(
        self,
        made: list[tuple[Call[Any], ScheduleBody]],
        submit: Callable[[Sequence[ScheduleBody]], Awaitable[Sequence[Submitted | OutboxItem]]],
        *,
        first: int,
    ) -> list[JobHandle[Any]]:
        try:
            found = await submit([body for _, body in made])
        except PartlySubmitted as problem:
            calls = {job_key(body.kind, job_id(body.manifest)): call for call, body in made}
            problem.position += first
            problem.submitted = [
                self.handle_of(one, calls[job_key(one.kind, one.id)].signature)
                for one in problem.submitted
            ]
            raise
        handles = [
            self.handle_of_either(one, call.signature)
            for one, (call, _) in zip(found, made, strict=True)
        ]
        for index, one in enumerate(handles, start=first):
            one.index = index
        return handles


def _key(body: ScheduleBody) -> LaneKey:
    return job_key(body.kind, job_id(body.manifest))


def _take(waiting: dict[LaneKey, list[JobHandle[R]]], ended: Ended) -> list[JobHandle[R]]:
    """The handles of a job that has ended."""
    handles = waiting.pop(job_key(ended.job.kind, ended.job.id), [])
    for handle in handles:
        handle.known_end = ended
    return handles


async def as_completed(
    handles: Iterable[JobHandle[R]],
    *,
    timeout: float | timedelta | str | None = None,  # noqa: ASYNC109 - of all of them together
) -> AsyncIterator[JobHandle[R]]:
    """Each job as it ends, whatever its end: `result()` then returns, or raises, at once.

    `TimeoutError` if some have not ended after `timeout`; the jobs themselves go on. With 0, those
    come that have ended by now. `Rejected` if one of them is not on the log.
    """
    now_s = asyncio.get_running_loop().time
    left_s = limit_s = None if timeout is None else seconds(timeout)
    given = list(handles)
    waiting: dict[LaneKey, list[JobHandle[R]]] = {}
    for handle in given:
        if handle.known_end is None:
            await handle.found(timeout)
            waiting.setdefault(job_key(handle.kind, handle.id), []).append(handle)
        else:
            yield handle
    if not waiting:
        return
    session = _one_session(given)
    await _check_known(session, waiting)
    unanswered = _Unanswered(session)
    with Ends(session) as ends:
        for key, same in waiting.items():
            ends.add(key.kind, key.name, lane=same[0].known_lane)
        is_over = False
        while waiting:
            if is_over:
                raise TimeoutError(_too_late(waiting, len(given), limit_s))
            begun_s = now_s()
            try:
                async with asyncio.timeout(left_s):
                    found = await unanswered.next(ends, waiting) if left_s != 0 else []
            except TimeoutError:
                found = []
            is_over = not found
            if is_over:
                found = await _ended_by_now(ends)
            if left_s is not None:  # what the loop's body does is not waiting
                left_s = max(left_s - (now_s() - begun_s), 0.0)
            for ended in found:
                for handle in _take(waiting, ended):
                    yield handle


async def _ended_by_now(ends: Ends) -> list[Ended]:
    """A last look once the time is over; nothing if the engine does not answer."""
    found: list[Ended] = []
    with suppress(Unavailable, TimeoutError):
        async with asyncio.timeout(LAST_LOOK_S * (1 + len(ends) // SUBJECTS_AT_ONCE)):
            async for some in ends.now():
                found += some
    return found


async def _check_known(
    session: Session, waiting: Mapping[LaneKey, Sequence[JobHandle[Any]]]
) -> None:
    """`Rejected` if one of them is not on the log: nobody waits for what cannot come."""
    unseen = [key for key, same in waiting.items() if not any(one.is_known for one in same)]
    for first in range(0, len(unseen), LANES_AT_ONCE):
        missing = unseen[first : first + LANES_AT_ONCE]
        for pause in (True, False):
            views = await session.read_lanes(dict.fromkeys(missing, 0))
            missing = [key for key, view in views.items() if cast("JobView", view).lane.job is None]
            if not missing:
                break
            if pause:
                await session.pause(SECOND_LOOK)
        if missing:
            raise no_job(missing[0].kind, missing[0].name)
    for key in unseen:
        waiting[key][0].is_known = True


class _Unanswered:
    """Warns with `NobodyAnswers`, once, if after a few seconds none of a kind's jobs has ended."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._at_s: float | None = asyncio.get_running_loop().time() + DIAGNOSIS_AFTER_S
        self._answered: set[str] = set()

    async def next(self, ends: Ends, waiting: Mapping[LaneKey, object]) -> list[Ended]:
        """The next ends."""
        if self._at_s is not None:
            try:
                async with asyncio.timeout_at(self._at_s):
                    found = await ends.next()
            except TimeoutError:
                self._at_s = None
                await self._ask(waiting)
            else:
                self._answered.update(ended.job.kind for ended in found)
                return found
        return await ends.next()

    async def _ask(self, waiting: Mapping[LaneKey, object]) -> None:
        one_each = {key.kind: key for key in waiting if key.kind not in self._answered}
        try:
            found = await diagnosed(self._session, list(one_each.values())[:KINDS_ASKED])
        except AntiphonError:
            return  # whoever waits goes on waiting
        for lines in found:
            warnings.warn(NobodyAnswers("; ".join(lines)), stacklevel=4)


def _one_session(handles: list[JobHandle[R]]) -> Session:
    session = handles[0].session
    if any(handle.session is not session for handle in handles):
        raise Misconfigured(
            "these jobs were submitted through more than one Mesh",
            hint="wait for the jobs of each Mesh separately",
        )
    return session


def _too_late(waiting: Mapping[LaneKey, object], total: int, limit_s: float | None) -> str:
    first = next(iter(waiting))
    return (
        f"{len(waiting)} of {total} jobs have not ended after {limit_s:g} s; "
        f"one of them is {first.name[:8]} ({first.kind}): antiphon why {first.name[:8]}"
    )


@overload
async def gather(
    *handles: JobHandle[R],
    timeout: float | timedelta | str | None = None,  # noqa: ASYNC109 - as below
    return_exceptions: Literal[False] = False,
) -> list[R]: ...


@overload
async def gather(
    *handles: JobHandle[R],
    timeout: float | timedelta | str | None = None,  # noqa: ASYNC109 - as below
    return_exceptions: Literal[True],
) -> list[R | Exception]: ...


async def gather(
    *handles: JobHandle[R],
    timeout: float | timedelta | str | None = None,  # noqa: ASYNC109 - of all of them together
    return_exceptions: bool = False,
) -> list[R] | list[R | Exception]:
    """The results of jobs, in the order of the handles.

    The first job to fail raises its `JobFailed` here; the others go on. With `return_exceptions`
    errors take the places of their results instead. `TimeoutError` after `timeout` in any case.
    """
    found: dict[int, R | Exception] = {}
    async for handle in as_completed(handles, timeout=timeout):
        try:
            found[id(handle)] = await handle.result()
        except Exception as problem:
            if not return_exceptions:
                raise
            found[id(handle)] = problem
    return [found[id(handle)] for handle in handles]
