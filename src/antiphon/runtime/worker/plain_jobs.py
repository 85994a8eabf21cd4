"""Plain short jobs: from their announcement to their accepted end, many at a time.

A plain job is new, has nothing but its arguments, and its handler is a coroutine function that asks
for no context. It goes the way that `job_deliveries` describes, with the same claim, the same proof
and the same reading back; but its steps are taken together with those of others, in the turns of
`write_turns`, and nothing is made for it besides the task in which its handler runs.

Whatever is not as hoped leaves, and goes on as every other job does, from where it stands: one
that still runs after `SHORT_S`, or waits that long for its slot, that failed, whose race is lost or
whose answer is missing; and all of them when the worker stops or pauses.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct

from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import EMPTY, Job, JobLane, State
from antiphon.core.policy.queue_credit import SHORT_S
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.policy import DEFAULT_POLICY
from antiphon.errors import AntiphonError
from antiphon.runtime import tracing
from antiphon.runtime.executors import proof_writer
from antiphon.runtime.executors.handler_call import INLINE_BYTES, JSON, RESULT, inline_output
from antiphon.runtime.executors.handlers import HandlerExecutor
from antiphon.runtime.log.writer import Begun, Intent, Policy, own_record
from antiphon.runtime.worker.job_output import LiveOutputSender

if TYPE_CHECKING:
    from antiphon.ports import Delivery
    from antiphon.runtime.executors.executor import Executors
    from antiphon.runtime.executors.printed_output import Stream
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.worker.run_slots import RunSlots
    from antiphon.runtime.worker.runs.job_run import JobRun
    from antiphon.runtime.worker.runs.run_figures import RunFigures
    from antiphon.runtime.worker.tenure import Leases

CLAIM: Final = Policy(foresees=True, insists=False, is_sure=True)
END: Final = Policy(look=own_record, insists=False, is_sure=True)
_making: Final = threading.Lock()
"""For the output of a handler, which any of its threads may be the first to write."""


class PlainJob:
    """A plain job in hand."""

    __slots__ = (
        "began_s",
        "body",
        "boot_s",
        "delivery",
        "end",
        "ended_s",
        "executor",
        "has_left",
        "job",
        "key",
        "lane",
        "live",
        "loan_s",
        "run",
        "session",
        "task",
    )

    def __init__(
        self,
        session: Session,
        delivery: Delivery,
        lane: JobLane,
        body: ScheduleBody,
        executor: HandlerExecutor,
        loan_s: float,
    ) -> None:
        """`lane` has its schedule only."""
        if lane.job is None:
            raise ValueError("a plain job is a job")
        self.session = session
        self.delivery = delivery
        self.lane = lane
        self.job: Job = lane.job
        self.key = (lane.job.kind, lane.job.id)
        self.body = body
        self.executor = executor
        self.loan_s = loan_s
        self.boot_s = self.began_s = self.ended_s = 0.0
        """When its claim was made, which its lease counts from; when its handler began and ended,
        on the clock that runs in suspend."""
        self.task: asyncio.Task[Any] | None = None
        self.end: CompleteBody | None = None
        self.live: LiveOutputSender | None = None
        self.run: JobRun | None = None
        """What it is told of, once it has left."""
        self.has_left = False

    def prints(self, stream: Stream, data: bytes) -> None:
        """What its handler prints; from any thread."""
        with _making:
            run, live = self.run, self.live
            if run is None and live is None and self.task is not None:
                loop = self.task.get_loop()
                live = LiveOutputSender(self.session, *self.key, self.job.fence, loop=loop)
                self.live = live
        if run is not None:
            run.output(stream, data)
        elif live is not None:
            live.output(stream, data)

    def goes_on_as(self, run: JobRun) -> None:
        """It has left: what its handler prints from now on is told to this run."""
        with _making:
            run.live, self.run = self.live, run
        run.began_s, run.ended_s = self.began_s, self.ended_s
        run.slot, run.call = self, self.task


class Leaving(Struct, frozen=True):
    """A job that goes on as every other does, and how far it has come."""

    one: PlainJob
    claim: Begun | None = None
    """How far its claim was written; None: it is claimed."""
    end: Begun | None = None
    """How far its end was written; None: not begun."""


class PlainJobs:
    """The plain jobs of one worker."""

    def __init__(
        self, executors: Executors, leases: Leases, slots: RunSlots, figures: RunFigures
    ) -> None:
        """Nothing is in hand."""
        self.session: Session = leases.session
        self._executors = executors
        self._turns = leases.turns
        self._slots = slots
        self._figures = figures
        self.go_on: Callable[[Leaving], None]
        """Carries on with a job that leaves."""
        self.settled: Callable[[PlainJob], None]
        """Told of a job that the log shows as ended by its completion."""
        self.jobs: dict[tuple[str, str], PlainJob] = {}
        self.is_closed = False
        """Whether all leave at their next step, and none is taken."""
        self._watched: deque[tuple[float, PlainJob]] = deque()
        """Those that were claimed, and when they are no longer short."""
        self._timer: asyncio.TimerHandle | None = None

    # --- which jobs -------------------------------------------------------------------------------

    def plain(self, delivery: Delivery, kind: str, loan_s: float) -> PlainJob | None:
        """The job that this announces, if it is plain; None: it goes the way of all others."""
        if self.is_closed or delivery.deliveries != 1:
            return None
        try:
            opened = self.session.open(delivery.record)
            if type(opened.op) is not JobSchedule:
                return None
            body = opened.op.body
            executor = self._executors.find(kind, body.manifest)
            if not (
                isinstance(executor, HandlerExecutor) and executor.is_plain and _is_bare(kind, body)
            ):
                return None
            if self.session.control.tempo != DEFAULT_POLICY or tracing.is_wanted(body.trace):
                return None  # its proof says what it cost; it has a span
            outcome = self.session.judge_first(opened, EMPTY)
        except AntiphonError:
            return None
        lane = outcome.lane if outcome is not None and outcome.changed else None
        if not isinstance(lane, JobLane) or lane.job is None or lane.job.state is not State.PENDING:
            return None
        return PlainJob(self.session, delivery, lane, body, executor, loan_s)

    # --- claim ------------------------------------------------------------------------------------

    def begin(self, one: PlainJob) -> None:
        """Claim it with the next turn."""
        self.jobs[one.key] = one
        one.boot_s = self.session.wall.boot_s()
        job = one.job
        body = ClaimBody(kind=job.kind, job=job.id, lease_ms=job.lease_ms, begin=True)
        self._turns.begin(Intent(JobClaim, body, one.lane), CLAIM, partial(self._claimed, one))

    def _claimed(self, one: PlainJob, begun: Begun | None) -> None:
        if begun is None:
            self._drop(one)
            return
        written = begun.written
        lane = written.lane if written is not None and written.verdict is Verdict.OK else None
        if lane is None or lane.job is None or written is None or written.view is None:
            self._leave(Leaving(one, claim=begun))
            return
        is_ours = lane.job.claimer == self.session.author.did
        if self.is_closed or not is_ours or written.view.submitted_with != one.body:
            self._leave(Leaving(one, claim=begun))
            return
        one.lane, one.job = lane, lane.job
        if lane.job.is_audited:  # it has more to store than its result
            self._leave(Leaving(one))
            return
        self._watch(one)
        if self._slots.enter(one, partial(self._run, one)):
            self._run(one)

    # --- run --------------------------------------------------------------------------------------

    def _run(self, one: PlainJob) -> None:
        """Begin its handler; it has a slot."""
        if one.has_left:
            return
        try:
            call = one.executor.begin(one.body.manifest.args[0], one.prints)
        except Exception:  # noqa: BLE001 - the user's own types; the way of all others tells it
            self._leave(Leaving(one))
            return
        one.began_s = self.session.wall.boot_s()
        self._figures.begun(one.job)
        one.task = asyncio.get_running_loop().create_task(call)
        one.task.add_done_callback(partial(self._ran, one))

    def _watch(self, one: PlainJob) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + SHORT_S
        self._watched.append((due_s, one))
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._look_soon)

    def _look_soon(self) -> None:
        """Look after what the loop has to do already: that it was busy makes no job long."""
        asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Let those go that are not short."""
        self._timer = None
        loop, watched = asyncio.get_running_loop(), self._watched
        while watched and watched[0][0] <= loop.time():
            _, one = watched.popleft()
            has_ended = one.task is not None and one.task.done()  # which `_ran` is told next
            if one.end is None and not one.has_left and not has_ended:
                self._leave(Leaving(one))
        if watched:
            self._timer = loop.call_at(watched[0][0], self._look_soon)

    # --- prove, and complete ----------------------------------------------------------------------

    def _ran(self, one: PlainJob, task: asyncio.Task[Any]) -> None:
        """Its handler has ended."""
        if one.has_left:
            return
        one.ended_s = self.session.wall.boot_s()
        end = None
        if not task.cancelled() and task.exception() is None:
            # Whatever the result's types do, the way of all others meets it again, and tells it.
            with suppress(Exception):
                end = self._proved(one, task)
        if end is None:
            self._leave(Leaving(one))
            return
        self._slots.leave(one)
        one.end = end
        if one.live is not None:
            one.live.close()
        self._turns.begin(Intent(JobComplete, end, one.lane), END, partial(self._ended, one))

    def _proved(self, one: PlainJob, task: asyncio.Task[Any]) -> CompleteBody | None:
        """The completion; None if its result does not fit into it."""
        job, session = one.job, self.session
        text = one.executor.handler.signature.encode_result(task.result())
        if len(text) > INLINE_BYTES:
            return None
        end = CompleteBody(
            kind=job.kind,
            job=job.id,
            fence=job.fence,
            status="succeeded",
            outputs=(inline_output(RESULT, text.decode(), JSON),),
        )
        held_ms = max(round((session.wall.boot_s() - one.boot_s) * 1000), 0)
        run = proof_writer.Run(
            manifest=one.body.manifest,
            usage=Usage(wall_ms=held_ms),
            runner=proof_writer.python_runner(),
        )
        return proof_writer.prove(session, end, run)

    def _ended(self, one: PlainJob, begun: Begun | None) -> None:
        if begun is None:
            self._drop(one)
            return
        written = begun.written
        job = written.lane.job if written is not None and written.verdict is Verdict.OK else None
        if job is None or not job.is_terminal:
            self._leave(Leaving(one, end=begun))
            return
        one.delivery.ack()
        self._figures.succeeded(job, one.ended_s - one.began_s)
        self._drop(one)
        self.settled(one)

    # --- leaving ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Have all of them leave: those that a turn is writing now as soon as it has."""
        self.is_closed = True
        while self._watched:
            _, one = self._watched.popleft()
            if one.end is None and not one.has_left:
                self._leave(Leaving(one))

    def open(self) -> None:
        """Take plain jobs again."""
        self.is_closed = False

    def _leave(self, leaving: Leaving) -> None:
        self._drop(leaving.one)
        self.go_on(leaving)

    def _drop(self, one: PlainJob) -> None:
        one.has_left = True
        self.jobs.pop(one.key, None)


def _is_bare(kind: str, body: ScheduleBody) -> bool:
    """Whether it has nothing but its arguments."""
    manifest = body.manifest
    return (
        manifest.handler == kind
        and manifest.inputs is UNSET
        and len(manifest.args) == 1
        and body.score is None
        and body.budget is None
        and body.replica is None
        and body.start_by is None
    )
