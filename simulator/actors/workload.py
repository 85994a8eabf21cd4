"""The workload: who submits which jobs, and what their handlers do.

A workload is drawn before the run begins: each submitter has its list of jobs, with the moment
of each. Submitters retry through crashes and lost answers, as a person with a script would: an
unknown outcome is read before it is tried again. Handlers take virtual time and fail as told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs.derivation import Cron, Reaction, Trigger
from antiphon.core.families.jobs.ops import JobSchedule, Retry, ScheduleBody
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.jobs.priority import Priority
from antiphon.core.families.jobs.state import EMPTY, Job, JobLane
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.core.family import Lane
from antiphon.core.inference.exchange import Exchange
from antiphon.errors import Conflict, NoAnswer, PartlySubmitted, Rejected, Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.executors import printed_output
from antiphon.runtime.executors.handler_call import JobContext, call_text
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.inference.recorder import current
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, Policy, Written, whole_lane, write_one
from antiphon.testing.host_clock import HostClock
from simulator.actors.machines import SLOTS, Machine
from simulator.actors.people import ASKED_AT, ASKED_EVERY, CHOICES, OPEN_S, QUESTION_KIND
from simulator.checks.law_state import AFTER
from simulator.checks.plain_record import Key
from simulator.checks.referee import Referee
from simulator.cluster import Cluster

KINDS: Final = ("build.fast", "render.slow", "fetch.flaky", "doomed")
PLAIN_KIND: Final = KINDS[0]
"""Its handler asks for no context, so that most of its jobs are plain ones for a worker."""
STREAM_KIND: Final = KINDS[2]
"""Its handler sends parts, where handlers take steps."""
ALWAYS: Final = 1_000
"""More failures than any job has attempts."""
SHARED: Final = 0.06
"""Jobs that both submitters call."""
CANCELLED: Final = 0.06
LABEL: Final = "few"
LIMITED: Final = 0.06
"""Jobs under a limit for the whole mesh."""
FOLLOWING: Final = 0.1
"""Jobs that wait for others, half of them for their results."""
RECENT: Final = 20
"""Among how many earlier calls those are."""
DELAYED: Final = 0.08
"""Jobs that begin later, some of them at a time that has passed."""
REPLICATED_EVERY: Final = 25
REPLICATED_AT: Final = 7
"""Of so many jobs, the one that is run as three replicas, of which two have to agree."""
LIAR: Final = "worker-2"
"""Answers every second of these falsely."""
DELAYS_MS: Final = (100, 300_000)
_PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "normal", "normal", "low")
LEASES_MS: Final = (None, None, 5_000, 8_000, 20_000)
BURST_JOBS: Final = (3, 12)
BURST_NUMBERS: Final = 1_000_000
"""The first of them: no other job has such a number."""
STEPS: Final = 4
"""Of a handler that takes its time in steps, or sends parts."""
NOTHING: Final = object()
"""What a handler is given for the result of another job if it reads none."""
LONGEST_PAUSE_S: Final = 15.0
"""Between two tries of a call that the rules refuse: the clock is wrong, or a grant is missing."""


class Call(Struct, frozen=True, kw_only=True):
    """One job to be called."""

    at_s: float
    number: int
    kind: str
    duration_ms: int
    fails: int
    """How many of the first attempts fail."""
    priority: Priority
    attempts: int | None
    lease_ms: int | None
    timeout_s: int
    start_within_ms: int | None
    is_limited: bool
    after: tuple[Call, ...] = ()
    reads: bool = False
    """Whether it reads the result of the first of them."""
    any_outcome: bool = False
    is_replicated: bool = False
    """Whether it is run several times, and enough have to agree."""
    delay_ms: int | None
    names_dep: bool
    """Whether the call names an earlier record that must be on the log."""
    cancel_after_s: float | None

    @property
    def manifest(self) -> manifest.Manifest:
        """What is run; the number makes it a job of its own."""
        before = {"before": None} if self.reads else {}
        arguments = call_text((self.number, self.duration_ms, self.fails), before)
        content = {"command": [f"@{self.kind}"], "args": [arguments], "timeout": self.timeout_s}
        if self.reads:
            read = {"kind": "result", "of": self.after[0].key, "name": "/kwargs/before"}
            content["inputs"] = [read]
        return manifest.author(content)

    @property
    def key(self) -> Key:
        """The job that it becomes."""
        return self.kind, manifest.job_id(self.manifest)


def _planned(number: int, kind: str, trigger: Trigger) -> PlanBody:
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, 50, 0), {})], "timeout": 120}
    )
    return PlanBody(kind=kind, name=f"plan-{number}", manifest=content, trigger=trigger)


PLANS: Final = (
    _planned(1_000_001, KINDS[0], Cron(at="*/30 * * * * *", zone="UTC", missed="all")),
    _planned(1_000_002, KINDS[1], Reaction(on="ended", kinds="build.*")),
)
"""Jobs that follow from others, one of them from every third or so of the workload."""


def _put(body: PlanBody, lane: Lane, did: str) -> Intent | None:
    plan = lane.state
    stands = plan is not None and not plan.is_dropped and plan.author == did
    return None if stands else Intent(PlanPut, body, lane)


def _drop(body: PlanBody, lane: Lane, _did: str) -> Intent | None:
    if lane.state is None or lane.state.is_dropped:
        return None
    return Intent(PlanDrop, DropBody(kind=body.kind, name=body.name), lane)


class Promise(Struct, frozen=True):
    """A sequence at which the log said to hold these bytes."""

    seq: int
    payload: bytes


class Workload:
    """All jobs of a run."""

    def __init__(self, chance: random.Random, *, jobs: int, span_s: float) -> None:
        """Spread `jobs` jobs over `span_s`, for two submitters."""
        self.calls: tuple[list[Call], list[Call]] = ([], [])
        self.promises: list[Promise] = []
        self.bursts: list[list[Call]] = []
        self.has_steps = False
        """Whether handlers that have a context take their time in steps."""
        self.has_questions = False
        """Whether some of them ask people."""
        self.runs = 0
        for number in range(jobs):
            call = _draw(chance, number, span_s)
            side = number % 2
            self.calls[side].append(call)
            if chance.random() < SHARED:
                self.calls[1 - side].append(call)
        for calls in self.calls:
            calls.sort(key=lambda call: (call.at_s, call.number))
            _link(chance, calls)

    def add_bursts(self, chance: random.Random, *, bursts: int, span_s: float) -> None:
        """Jobs that are submitted together, by both submitters at the same moment."""
        for burst in range(bursts):
            at_s, size = chance.uniform(0.05, 0.95) * span_s, chance.randint(*BURST_JOBS)
            first = BURST_NUMBERS + 100 * burst
            drawn = [_draw(chance, first + number, span_s) for number in range(size)]
            plain = {"delay_ms": None, "cancel_after_s": None, "start_within_ms": None}
            fast = {"kind": KINDS[0], "duration_ms": 50, "fails": 0, "is_limited": False}
            self.bursts.append([replace(one, at_s=at_s, **plain, **fast) for one in drawn])

    def handlers(self, referee: Referee, name: str, kinds: tuple[str, ...]) -> Handlers:
        """A worker's handlers."""
        handlers = Handlers()
        for kind in kinds:
            handlers.register(kind, self._handler(referee, name, kind))
        return handlers

    def _handler(self, referee: Referee, name: str, kind: str) -> Callable[..., object]:

        async def run(
            job: Job,
            number: int,
            duration_ms: int,
            fails: int,
            before: object,
            ctx: JobContext | None = None,
        ) -> object:
            self.runs += 1
            key, attempt = (kind, job.id), job.attempts + 1
            if before is not NOTHING and not isinstance(before, dict | int):
                referee.accuse("results_arrive", f"{number} was given {before!r}", key)
            with referee.running(name, key, job.fence, slots=SLOTS):
                if ctx is not None and self.has_steps:
                    await self._in_steps(referee, name, ctx, duration_ms)
                else:
                    await asyncio.sleep(duration_ms / 1000)
                if ctx is not None and self.has_questions and number % ASKED_EVERY == ASKED_AT:
                    await self._ask(referee, name, ctx, number)
            self._call_models(referee, key, job.fence, number)
            if attempt <= fails:
                raise RuntimeError(f"attempt {attempt} of {number} fails")
            is_lie = name == LIAR and number % (2 * REPLICATED_EVERY) == REPLICATED_AT
            return {"number": -number if is_lie else number}

        async def plain(
            number: int, duration_ms: int, fails: int, before: object = NOTHING
        ) -> object:
            return await run(_current_job(), number, duration_ms, fails, before)

        async def work(
            number: int, duration_ms: int, fails: int, ctx: JobContext, before: object = NOTHING
        ) -> object:
            job = _current_job()
            if (ctx.job_id, ctx.fence, ctx.attempt) != (job.id, job.fence, job.attempts + 1):
                referee.accuse("context_is_true", f"{number} was told {ctx}", (kind, job.id))
            return await run(job, number, duration_ms, fails, before, ctx)

        async def stream(
            number: int, duration_ms: int, fails: int, ctx: JobContext, before: object = NOTHING
        ) -> AsyncIterator[int]:
            key, first = (kind, ctx.job_id), ctx.stream.stored
            referee.goes_on(name, key, ctx.fence, first)
            for part in range(first, STEPS):
                await asyncio.sleep(duration_ms / 1000 / STEPS)
                yield part
            await run(_current_job(), number, 0, fails, before)

        if self.has_steps and kind == STREAM_KIND:
            return stream
        return plain if kind == PLAIN_KIND else work

    @staticmethod
    def _call_models(referee: Referee, key: Key, fence: str, number: int) -> None:
        """Make up to two model calls, where somebody is to be told of them."""
        recorder = current()
        if recorder is None:
            return
        for call in range(number % 3):
            referee.calls_model(key, fence)
            recorder.add(
                Exchange(
                    library="none",
                    method="POST",
                    url="http://models.example/v1/embeddings",
                    request=f'{{"input":"{number} {call}","model":"m"}}'.encode(),
                    started=recorder.stamp(),
                    ended=recorder.stamp(),
                )
            )

    async def _ask(self, referee: Referee, name: str, ctx: JobContext, number: int) -> None:
        key = (ctx.kind, ctx.job_id)
        text = f"go on with {ctx.kind} {ctx.job_id}?"
        shortest_s, longest_s = OPEN_S
        within_s = shortest_s + number % 7 / 7 * (longest_s - shortest_s)
        try:
            said = await ctx.ask(text, kind=QUESTION_KIND, choices=CHOICES, within=within_s)
        except NoAnswer as none:
            referee.was_not_told(name, key, text, none.reason)
            return
        referee.was_told(name, key, text, said)
        # What is asked next depends on the answer: a run that went on with another one would show.
        text = f"and with {ctx.kind} {ctx.job_id}{AFTER}{said}?"
        try:
            then = await ctx.ask(
                text, kind=QUESTION_KIND, name="second", choices=CHOICES, within=within_s
            )
        except NoAnswer as none:
            referee.was_not_told(name, key, text, none.reason)
        else:
            referee.was_told(name, key, text, then)

    async def _in_steps(
        self, referee: Referee, name: str, ctx: JobContext, duration_ms: int
    ) -> None:
        key = (ctx.kind, ctx.job_id)

        async def compute(number: int) -> str:
            referee.computes(name, key, ctx.fence, f"step {number}")
            await asyncio.sleep(duration_ms / 1000 / STEPS)
            return f"{number} under {ctx.fence}"

        for number in range(STEPS):
            step = f"step {number}"
            referee.passed(name, key, step, await ctx.step(step, compute, number))


def _current_job() -> Job:
    """The job whose handler runs here, also of one that asks for no context."""
    job: Job = printed_output._current.get().__self__.job  # type: ignore[union-attr]  # noqa: SLF001 - what it prints is told to its run
    return job


def _draw(chance: random.Random, number: int, span_s: float) -> Call:
    kind = chance.choices(KINDS, weights=(50, 20, 25, 5))[0]
    duration_ms = {
        "build.fast": lambda: int(10 ** chance.uniform(0, 3)),
        "render.slow": lambda: int(chance.uniform(2_000, 50_000)),
        "fetch.flaky": lambda: int(chance.uniform(50, 9_000)),
        "doomed": lambda: int(chance.uniform(10, 3_000)),
    }[kind]()
    fails = 0
    if kind == "doomed":
        fails = ALWAYS
    elif kind == "fetch.flaky":
        fails = chance.choice((0, 1, 1, 2, 3))
    wait = chance.random()
    is_limited = wait < LIMITED
    delay_ms = None if is_limited else _delay_ms((wait - LIMITED) / DELAYED)
    return Call(
        at_s=chance.uniform(0.0, span_s),
        number=number,
        kind=kind,
        duration_ms=duration_ms,
        fails=fails,
        priority=chance.choice(_PRIORITIES),
        attempts=chance.choice((None, None, 1, 2, 6)),
        lease_ms=chance.choice(LEASES_MS),
        timeout_s=chance.choice((0, 120, 120, 20)),
        start_within_ms=30_000 if chance.random() < 0.05 else None,
        is_limited=is_limited,
        is_replicated=number % REPLICATED_EVERY == REPLICATED_AT,
        delay_ms=delay_ms,
        names_dep=chance.random() < 0.1,
        cancel_after_s=chance.uniform(0.0, 30.0) if chance.random() < CANCELLED else None,
    )


def _link(chance: random.Random, calls: list[Call]) -> None:
    """Let some calls wait for earlier ones; a submitter makes them in this order."""
    for at, call in enumerate(calls):
        if at == 0 or chance.random() >= FOLLOWING:
            continue
        some = chance.sample(calls[max(at - RECENT, 0) : at], k=min(chance.choice((1, 1, 2)), at))
        reads, any_outcome = chance.random() < 0.5, chance.random() < 0.3
        calls[at] = replace(call, after=tuple(some), reads=reads, any_outcome=any_outcome)


def _delay_ms(share: float) -> int | None:
    """From a moment ago to minutes ahead, each length as likely as its double."""
    least_ms, most_ms = DELAYS_MS
    if share >= 1:
        return None
    past_share = 0.1
    return -least_ms if share < past_share else round(least_ms * (most_ms / least_ms) ** share)


class SubmitterMachine(Machine):
    """Submits the jobs of its list, each at its time, until each is on the log."""

    def __init__(
        self, cluster: Cluster, name: str, *, clock: HostClock, workload: Workload, side: int
    ) -> None:
        """`side` picks the list."""
        super().__init__(cluster, name, clock=clock)
        self._workload = workload
        self._side = side
        self._done = 0
        self._bursts_done: set[int] = set()
        self._hurry = asyncio.Event()
        self.has_plans = False
        """Whether it puts `PLANS` at the beginning, and drops them at the end."""
        self.is_finished = False

    async def run(self) -> None:
        """Continue where the last process stopped; a job may then be submitted twice."""
        session = self.connect()
        await session.sync_control()
        calls = self._workload.calls[self._side]
        if self.has_plans and not self.is_finished:
            await self._bring(session, _put)
        async with asyncio.TaskGroup() as cancels:
            for number, burst in enumerate(self._workload.bursts):
                if number not in self._bursts_done:
                    cancels.create_task(self._submit_together(session, number, burst))
            while self._done < len(calls):
                call = calls[self._done]
                await self._until(call.at_s)
                await self._submit(session, call)
                self._done += 1
                if call.cancel_after_s is not None:
                    cancels.create_task(self._cancel(session, call, call.cancel_after_s))
        if self.has_plans:
            await self._bring(session, _drop)
        self.is_finished = True

    def hurry(self) -> None:
        """Submit the next job now, whenever its time is."""
        self._hurry.set()

    async def _until(self, at_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(at_s):
                await self._hurry.wait()
        self._hurry.clear()

    async def _bring(self, session: Session, wanted: Callable[..., Intent | None]) -> None:
        """Put the plans, or drop them, however long it takes."""
        for body in PLANS:
            pause_s = 1.0
            while True:
                try:
                    view = await session.read(plan_key(body.kind, body.name))
                    intent = wanted(body, view.lane, self.keyring.did)
                    if intent is not None:
                        await write_one(session, intent, BEHIND)
                    break
                except (Conflict, Rejected, Unavailable):
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _submit(self, session: Session, call: Call) -> None:
        """Bring one call to the log, however long it takes."""
        deps = await self._deps(session, call)

        def wanted(lane: JobLane) -> Intent | None:
            """The call, unless it is there: someone else may have made it."""
            if lane.job is not None:
                return None
            return Intent(JobSchedule, self._body(call), lane, deps)

        async def promised(session: Session, draft: Draft, sent: Written) -> Written:
            if sent.seq:
                self._workload.promises.append(Promise(sent.seq, draft.payload))
            return await whole_lane(session, draft, sent)

        policy = Policy(again=lambda now: wanted(now.lane), foresees=True, look=promised)
        lane, pause_s = EMPTY, 1.0
        while (intent := wanted(lane)) is not None:
            try:
                lane = (await write_one(session, intent, policy)).lane
            except (Conflict, Rejected, Unavailable):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _submit_together(self, session: Session, number: int, calls: list[Call]) -> None:
        """Bring the calls of a burst to the log, however long it takes; then each must be there."""
        await asyncio.sleep(max(0.0, calls[0].at_s - asyncio.get_running_loop().time()))
        pause_s = 1.0
        while True:
            try:
                await submit_many(session, [self._body(call) for call in calls])
                break
            except (Conflict, PartlySubmitted, Rejected, Unavailable):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._bursts_done.add(number)
        for call in calls:
            lane = self.cluster.referee.lanes.get(call.key)
            if lane is None or lane.job is None:
                what = f"{self.name} was told that {call.number} is submitted, and it is not"
                self.cluster.referee.accuse("promises_kept", what, call.key)

    async def _deps(self, session: Session, call: Call) -> tuple[tuple[int, str], ...]:
        if not call.names_dep:
            return ()
        while True:
            try:
                await session.sync_control()
                newest = session.history.applied  # a control record: every reader sees it
                return ((newest, (await session.fetch_opened(newest)).op_id),)
            except Unavailable:
                await asyncio.sleep(1.0)

    def _body(self, call: Call) -> ScheduleBody:
        now_ms = self.clock.now_ms()
        not_before = None if call.delay_ms is None else now_ms + call.delay_ms
        start_by = None
        if call.start_within_ms:
            start_by = max(now_ms, not_before or 0) + call.start_within_ms
        return ScheduleBody(
            kind=call.kind,
            manifest=call.manifest,
            priority=call.priority,
            retry=Retry(attempts=call.attempts, base_ms=200, cap_ms=10_000),
            lease_ms=call.lease_ms,
            start_by=start_by,
            not_before=not_before,
            concurrency=LABEL if call.is_limited else None,
            after=tuple(one.key for one in call.after[call.reads :]),
            after_any_outcome=call.any_outcome,
            replicas=3 if call.is_replicated else None,
            quorum=2 if call.is_replicated else None,
        )

    async def _cancel(self, session: Session, call: Call, after_s: float) -> None:
        """Change one's mind; give up when the job has ended or the engine stays away."""
        await asyncio.sleep(after_s)
        job_id = manifest.job_id(call.manifest)
        for _ in range(10):
            try:
                with suppress(Rejected):
                    await submission.cancel(session, call.kind, job_id, reason="changed my mind")
            except (Conflict, Unavailable):
                await asyncio.sleep(1.0)
            else:
                return
