"""Bugs in what workers and full nodes do, whatever the rules say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.derivations.limit_use import UNLIMITED, LimitUse
from antiphon.core.derivations.offer_derivation import Derived, Waiter
from antiphon.core.families.jobs import planned
from antiphon.core.families.jobs.ops import OfferBody, Result
from antiphon.core.families.jobs.planned import starts_ms
from antiphon.core.families.jobs.state import State
from antiphon.core.family import Lane
from antiphon.core.manifest import Manifest, results_read, with_nonce
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.record.branches import LaneKey
from antiphon.core.reducer import Outcome, judge, settled
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.ports import Record
from antiphon.runtime.caller import bulk_submission
from antiphon.runtime.caller.submission import Submitted
from antiphon.runtime.coordinator import predecessors
from antiphon.runtime.log import write_turns
from antiphon.runtime.log.author import Draft
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.write_turns import WriteTurns
from antiphon.runtime.log.writer import Begun, Written, own_record
from antiphon.runtime.node.delayed_jobs import LONGEST_SLEEP_S, DelayedJobs
from antiphon.runtime.node.overdue_jobs import OverdueJobs
from antiphon.runtime.plans import plan_runner
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.worker import job_claims
from antiphon.runtime.worker.job_deliveries import JobDeliveries
from antiphon.runtime.worker.plain_jobs import PlainJob, PlainJobs
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.runtime.worker.run_slots import RunSlots
from antiphon.runtime.worker.runs.job_run import JobRun
from simulator.patch import patched


@contextmanager
def early_ack() -> Iterator[None]:
    """A worker acknowledges before it has read the accepted end."""
    really_end: Any = JobDeliveries._complete  # noqa: SLF001 - a mutant reaches where nobody else does

    async def end(self: JobDeliveries, run: JobRun, *rest: Any, **named: Any) -> None:
        run.tenure.delivery.ack()
        await really_end(self, run, *rest, **named)

    with patched(JobDeliveries, "_complete", end):
        yield


@contextmanager
def second_life() -> Iterator[None]:
    """A worker back with its dead predecessor's key renews that one's tenure, and runs it again."""
    with patched(job_claims, "HELD", frozenset()):
        yield


@contextmanager
def slots_uncounted() -> Iterator[None]:
    """A worker takes on whatever it is handed, and runs it at once."""

    async def take(*_: object) -> bool:
        return True

    def enter(*_: object) -> bool:
        return True

    with (
        patched(Credits, "admit", take),
        patched(RunSlots, "take", take),
        patched(RunSlots, "enter", enter),
    ):
        yield


@contextmanager
def plain_ends_unread() -> Iterator[None]:
    """A worker acknowledges a plain job when its end is sent, whatever becomes of that."""
    really_ran: Any = PlainJobs._ran  # noqa: SLF001

    def ran(self: PlainJobs, one: PlainJob, task: Any) -> None:
        if not one.has_left:
            one.delivery.ack()
        really_ran(self, one, task)

    with patched(PlainJobs, "_ran", ran):
        yield


@contextmanager
def stolen_calls_unheeded() -> Iterator[None]:
    """Full nodes repeat a call that nobody answers, and point nobody to it."""

    async def say_nothing(*_: object) -> None:
        return

    with patched(OverdueJobs, "_point_to", say_nothing):
        yield


@contextmanager
def delays_unheeded() -> Iterator[None]:
    """Full nodes leave delayed jobs to the coordinator, who does not offer them either."""

    async def look_away(_: DelayedJobs) -> float:
        return LONGEST_SLEEP_S

    with patched(DelayedJobs, "look", look_away):
        yield


@contextmanager
def first_verdicts_kept() -> Iterator[None]:
    """A worker keeps to its verdict on delivery, whatever grants and revocations came since."""
    really_judge = Session.judge

    async def judge(self: Session, opened: OpenedRecord, lane: Lane, **named: Any) -> Outcome:
        control = self.history.at(opened.seq, opened.commit_ms)
        match self._first.get(opened.seq):
            case same, before, (known, _), outcome if same is opened and known is control:
                if before == lane:
                    return outcome
        return await really_judge(self, opened, lane, **named)

    with patched(Session, "judge", judge):
        yield


@contextmanager
def limits_forgotten() -> Iterator[None]:
    """The coordinator offers whatever waits for room."""
    with patched(LimitUse, "room", lambda *_: UNLIMITED):
        yield


@contextmanager
def predecessors_forgotten() -> Iterator[None]:
    """The coordinator offers a job without looking at those that it waits for."""

    def derive(
        waiter: Waiter, content: Manifest | None, *_: object
    ) -> Generator[None, None, Derived]:
        read = results_read(content) if content is not None else ()
        job, results = waiter.job, (Result(text="null"),) * len(read)
        yield from ()
        body = OfferBody(kind=job.kind, job=job.id, priority=job.priority, results=results)
        return Derived(body)

    def states_for(*_: object) -> Callable[..., State]:
        return lambda _key: State.SUCCEEDED

    with (
        patched(predecessors, "derive_in_steps", derive),
        patched(predecessors.Predecessors, "states_for", states_for),
    ):
        yield


@contextmanager
def first_page_only() -> Iterator[None]:
    """Of a long lane nobody reads more than its first page."""
    really_read = MemoryLog.read_lane

    async def read_lane(
        self: MemoryLog, filters: Sequence[str], *, after: int = 0
    ) -> AsyncIterator[list[Record]]:
        async for page in really_read(self, filters, after=after):
            yield page
            return

    with patched(MemoryLog, "read_lane", read_lane):
        yield


@contextmanager
def ticks_doubled() -> Iterator[None]:
    """A coordinator forgets what was derived, and the ids of its jobs follow from nothing."""
    made = count()
    really_derive = planned.derived_body

    def derive(plan: Any, plan_id: str, derived: Any) -> Any:
        body = really_derive(plan, plan_id, derived)
        return replace(body, manifest=with_nonce(body.manifest, f"{next(made):016x}", "random"))

    with (
        patched(planned, "_is_said", lambda *_: True),
        patched(plan_runner, "derived_body", derive),
        patched(PlanRunner, "_derived_ms", lambda _, plan: starts_ms(plan.body, plan.put_ms)),
    ):
        yield


@contextmanager
def turn_results_mixed() -> Iterator[None]:
    """Of what a worker wrote together, each task gets the result of another."""
    really_read = WriteTurns._read_back  # noqa: SLF001

    async def read_back(self: WriteTurns, stored: list[Any]) -> None:
        told = [(one.told, one.waiter) for one in stored]
        for one, others in zip(stored, [*told[1:], *told[:1]], strict=True):
            one.told, one.waiter = others
        await really_read(self, stored)

    with patched(WriteTurns, "_read_back", read_back):
        yield


@contextmanager
def torn_turn_believed() -> Iterator[None]:
    """Ends that were sent together count as stored, whether or not the engine said so."""
    really_send, really_go = Session.send, write_turns._Waiting.goes_on  # noqa: SLF001
    sessions: dict[bytes, Session] = {}

    async def send(self: Session, drafts: Sequence[Draft], **named: Any) -> Any:
        sessions.update((draft.payload, self) for draft in drafts)
        return await really_send(self, drafts, **named)

    def goes_on(self: Any, begun: Begun | None) -> None:
        draft, lane = begun.draft if begun is not None else None, self.intent.lane
        was_lost = begun is not None and begun.told is not None
        if draft is not None and was_lost and self.policy.look is own_record:
            session = sessions[draft.payload]
            seq, now_ms = max(lane.tails) + 1, session.wall.now_ms()
            opened = replace(draft.opened, seq=seq, commit_ms=now_ms)
            outcome = settled(judge(session.control, lane, opened))
            begun = Begun(written=Written(self.intent, seq, outcome.verdict, outcome.lane))
        really_go(self, begun)

    with (
        patched(Session, "send", send),
        patched(write_turns._Waiting, "goes_on", goes_on),  # noqa: SLF001
    ):
        yield


@contextmanager
def rest_of_group_unsent() -> Iterator[None]:
    """Of jobs that were submitted together, those that were not stored count as submitted."""

    async def resolve(self: Any, position: int, draft: Draft, _begun: Begun) -> None:
        key = draft.opened.place.key if draft.opened.place is not None else LaneKey("", "", "")
        self.found[position] = Submitted(key.kind, key.name, 0, is_new=True)
        self._stored(position)

    with patched(bulk_submission._Bulk, "_resolve", resolve):  # noqa: SLF001
        yield


MUTANTS: Final = (
    ticks_doubled,
    turn_results_mixed,
    torn_turn_believed,
    rest_of_group_unsent,
    early_ack,
    second_life,
    slots_uncounted,
    plain_ends_unread,
    first_verdicts_kept,
    stolen_calls_unheeded,
    delays_unheeded,
    limits_forgotten,
    predecessors_forgotten,
    first_page_only,
)
