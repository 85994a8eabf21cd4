"""Bugs in what workers and full nodes do, whatever the rules say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.derivations.limit_use import UNLIMITED, LimitUse
from antiphon.core.derivations.offer_derivation import Derived
from antiphon.core.families.jobs import planned
from antiphon.core.families.jobs.ops import OfferBody, Result
from antiphon.core.families.jobs.planned import starts_ms
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.manifest import Manifest, results_read, with_nonce
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.ports import Record
from antiphon.runtime.coordinator import predecessors
from antiphon.runtime.node.delayed_jobs import LONGEST_SLEEP_S, DelayedJobs
from antiphon.runtime.node.overdue_jobs import OverdueJobs
from antiphon.runtime.plans import plan_runner
from antiphon.runtime.plans.plan_runner import PlanRunner
from antiphon.runtime.worker import worker
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.runtime.worker.runs.job_run import JobRun
from antiphon.runtime.worker.tenure_runner import TenureRunner
from antiphon.testing.mutations.patch import patched


@contextmanager
def early_ack() -> Iterator[None]:
    """A worker acknowledges before it has read the accepted end."""
    really_end: Any = TenureRunner._write  # noqa: SLF001 - a mutant reaches where nobody else does

    async def end(self: TenureRunner, run: JobRun, *rest: Any, **named: Any) -> None:
        run.tenure.delivery.ack()
        await really_end(self, run, *rest, **named)

    with patched(TenureRunner, "_write", end):
        yield


@contextmanager
def second_life() -> Iterator[None]:
    """A worker back with its dead predecessor's key renews that one's tenure, and runs it again."""
    with patched(worker, "HELD", frozenset()):
        yield


@contextmanager
def slots_uncounted() -> Iterator[None]:
    """A worker takes on whatever it is handed."""

    async def take(*_: object) -> bool:
        return True

    with patched(Credits, "admit", take):
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
def limits_forgotten() -> Iterator[None]:
    """The coordinator offers whatever waits for room."""
    with patched(LimitUse, "room", lambda *_: UNLIMITED):
        yield


@contextmanager
def predecessors_forgotten() -> Iterator[None]:
    """The coordinator offers a job without looking at those that it waits for."""

    def derive(job: Job, manifest: Manifest, *_: object) -> Derived:
        results = tuple(Result(text="null") for _ in results_read(manifest))
        body = OfferBody(kind=job.kind, job=job.id, priority=job.priority, results=results)
        return Derived(body)

    with (
        patched(predecessors, "derive", derive),
        patched(predecessors.Predecessors, "state", lambda *_, **__: State.SUCCEEDED),
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
        return replace(body, manifest=with_nonce(body.manifest, f"{next(made):016x}"))

    with (
        patched(planned, "_is_said", lambda *_: True),
        patched(plan_runner, "derived_body", derive),
        patched(PlanRunner, "_derived_ms", lambda _, plan: starts_ms(plan.body, plan.put_ms)),
    ):
        yield


MUTANTS: Final = (
    ticks_doubled,
    early_ack,
    second_life,
    slots_uncounted,
    stolen_calls_unheeded,
    delays_unheeded,
    limits_forgotten,
    predecessors_forgotten,
    first_page_only,
)
