"""Why a job went to a worker, and what it waits for (`antiphon why`, spec §8).

What the log says about a job is the same for everyone. Who is online is not on the log: candidates
are the workers known *now*, and an explanation claims no more. For a job that was claimed long ago
it shows the draws among the workers known now, next to who claimed it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.state import OPEN, Job, State
from antiphon.core.history.tenures import Tenure, lost_tenures, tenures_of
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Candidate, Method, Need, Unfit
from antiphon.core.record.subjects import covers
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antiphon.core.authority.control import Control
    from antiphon.core.opened_record import OpenedRecord

_PASSING: Final = frozenset({Unfit.BUSY, Verdict.COOLDOWN})
"""Reasons that may apply to a worker now but not when the job was claimed."""


class SelectionReason(StrEnum):
    """Why a selection applies to a job."""

    DEFAULT = "default"
    RULE = "rule"
    REQUIRES = "requires"


class Waits(StrEnum):
    """What an unclaimed job waits for."""

    TIME = "time"
    """Its time, before which nobody may offer it."""
    NODE = "node"
    """A full node that offers it: its time has come."""
    OFFER = "offer"
    """The coordinator's offer: after other jobs, or when there is room under its label."""
    REPLICAS = "replicas"
    """Enough of its replicas that agree."""
    RETRY = "retry"
    """The end of a pause after a failed attempt."""
    WORKER = "worker"
    """A worker that runs its kind."""
    LABELS = "labels"
    """A worker with the labels that it requires."""
    PAUSED = "paused"
    """The end of a pause: nobody may begin such jobs."""
    ROUTE = "route"
    """The node that its kind is routed to."""
    AUTHORITY = "authority"
    """A worker that may claim it: those that run the kind may not."""
    COOLDOWN = "cooldown"
    """The end of a cool-down: only workers whose tenure expired are online."""
    SLOT = "slot"
    """A free slot: all workers that could run it are busy."""
    CLAIM = "claim"
    """Nothing: a worker could claim it now."""


class Wait(Struct, frozen=True, kw_only=True):
    """One thing that a job waits for."""

    what: Waits
    until_ms: int = 0
    since_ms: int = 0
    node: str = ""
    labels: tuple[str, ...] = ()
    jobs: int = 0
    """How many other jobs have to end, or had to."""
    reason: str = ""
    """Why it is paused, if somebody said so."""
    per_minute: int = 0
    """How many replicas the coordinator submits for one member within a minute."""


class WorkerDraw(Struct, frozen=True, kw_only=True):
    """One worker and this job."""

    node: str
    draw: str
    """64 hexadecimal digits; empty where nothing is drawn."""
    score: str
    rank: int | None
    """0 should claim first; None if it is not a candidate, or nothing is drawn."""
    unfit: str
    """Why it is not a candidate, in one word; empty if it is one."""
    words: str
    labels: tuple[str, ...]
    weight: int
    free: int


class Explanation(Struct, frozen=True, kw_only=True):
    """Who has a job, who had it, who should claim it, and why."""

    kind: str
    job_id: str = field(name="job")
    state: str
    selection: Method
    because: SelectionReason
    prefix: str
    """The kind prefix of the rule, if a rule decided."""
    seed: str
    """The seed of the draw: 32 bytes as 64 hexadecimal digits."""
    requires: tuple[str, ...]
    route: str | None
    claim_window_ms: int
    lots: tuple[WorkerDraw, ...]
    """Candidates by rank, then the others."""
    tenures: tuple[Tenure, ...]
    lost: tuple[Tenure, ...]
    """Those whose worker was lost."""
    cooling: tuple[tuple[str, int], ...]
    """Workers that may not claim it yet, and until when."""
    waits_for: tuple[Wait, ...]


def explain(
    control: Control,
    job: Job,
    schedule: bytes,
    history: Sequence[tuple[OpenedRecord, Verdict]],
    known: Iterable[Candidate],
    *,
    now_ms: int,
) -> Explanation:
    """Explain a job from its lane (`schedule` is the accepted record) and the workers known.

    `history` includes the control records that ended a tenure (`core.authority_lapse`).
    """
    requires = _requires(history, job)
    need = Need(
        kind=job.kind,
        job_id=job.id,
        seed=selection.seed_of(schedule),
        requires=requires,
        cooling=job.cooling,
    )
    method = selection.method(control, job.kind, requires)
    because, prefix = _because(control, job.kind, requires)
    tenures = tenures_of(history)
    workers = {one.did: one for one in known}
    for tenure in tenures:
        gone = Candidate(did=tenure.node, kinds=(job.kind,), is_alive=False, free=0)
        workers.setdefault(tenure.node, gone)
    faults = {
        did: selection.unfitness(need, one, now_ms=now_ms)
        or selection.claim_fault(
            control, ChainChoice(did), did=did, kind=job.kind, job_id=job.id, now_ms=now_ms
        )
        for did, one in workers.items()
    }
    if job.state is not State.PENDING:
        # A worker that is busy or cooling down now was not when this was decided.
        faults = {did: None if fault in _PASSING else fault for did, fault in faults.items()}
    return Explanation(
        kind=job.kind,
        job_id=job.id,
        state=job.state.value,
        selection=method,
        because=because,
        prefix=prefix,
        seed=need.seed.hex(),
        requires=requires,
        route=control.route_for(job.kind),
        claim_window_ms=control.rules.claim_window_ms,
        lots=_lots(need, list(workers.values()), faults, is_drawn=method == "rendezvous"),
        tenures=tenures,
        lost=lost_tenures(history),
        cooling=tuple((who, until) for who, until in job.cooling if until > now_ms),
        waits_for=_waits(control, job, requires, workers, faults, now_ms),
    )


def _because(control: Control, kind: str, requires: Sequence[str]) -> tuple[SelectionReason, str]:
    if requires:
        return SelectionReason.REQUIRES, ""
    prefixes = [prefix for prefix, _ in control.rules.selection if covers(prefix, kind)]
    if not prefixes:
        return SelectionReason.DEFAULT, ""
    return SelectionReason.RULE, max(prefixes, key=len)


def _requires(history: Sequence[tuple[OpenedRecord, Verdict]], job: Job) -> tuple[str, ...]:
    for record, _ in history:
        if record.seq == job.scheduled_seq and isinstance(record.op, JobSchedule):
            return record.op.body.requires
    return ()


def _lots(
    need: Need,
    workers: list[Candidate],
    faults: dict[str, Unfit | Verdict | None],
    *,
    is_drawn: bool,
) -> tuple[WorkerDraw, ...]:
    drawn = selection.ranked(need, workers)
    rank = 0
    lots: list[WorkerDraw] = []
    for one in drawn:
        worker, fault = one.candidate, faults[one.candidate.did]
        lots.append(
            WorkerDraw(
                node=worker.did,
                draw=one.draw.hex() if is_drawn else "",
                score=f"{selection.score(one.draw, worker.weight):.6f}" if is_drawn else "",
                rank=rank if is_drawn and fault is None else None,
                unfit=fault.value if fault is not None else "",
                words=fault.in_words if fault is not None else "",
                labels=worker.labels,
                weight=worker.weight,
                free=worker.free,
            )
        )
        rank += fault is None
    return tuple(sorted(lots, key=lambda lot: lot.unfit != ""))


def _waits(
    control: Control,
    job: Job,
    requires: tuple[str, ...],
    workers: dict[str, Candidate],
    faults: dict[str, Unfit | Verdict | None],
    now_ms: int,
) -> tuple[Wait, ...]:
    if job.state not in OPEN:
        return ()
    pause = control.pause_of(job.kind, job.concurrency, job.plan_name)
    if pause is not None:
        paused = Wait(
            what=Waits.PAUSED, node=pause.by, since_ms=pause.since_ms, reason=pause.reason
        )
        return (paused, *(_offers(control, job, now_ms) if job.state is State.WAITING else ()))
    if job.state is State.WAITING:
        return _offers(control, job, now_ms)
    found: list[Wait] = []
    if job.retry_after_ms > now_ms:
        found.append(Wait(what=Waits.RETRY, until_ms=job.retry_after_ms))
    able = [did for did, fault in faults.items() if fault is None]
    if able:
        return tuple(found) or (Wait(what=Waits.CLAIM),)
    return (*found, _lacking(control, job, requires, workers, faults))


def _offers(control: Control, job: Job, now_ms: int) -> tuple[Wait, ...]:
    """What a job waits for that has not been offered."""
    found: list[Wait] = []
    if now_ms < job.not_before_ms:
        found.append(Wait(what=Waits.TIME, until_ms=job.not_before_ms))
    if job.waits_for_replicas:
        rate = control.rules.derived_per_minute
        return (Wait(what=Waits.REPLICAS, node=control.coordinator, per_minute=rate),)
    if not job.waits_for_time_alone:
        label = (job.concurrency,) if job.concurrency else ()
        jobs = len(job.awaited)
        found.append(Wait(what=Waits.OFFER, node=control.coordinator, labels=label, jobs=jobs))
    return tuple(found) or (Wait(what=Waits.NODE),)


def _lacking(
    control: Control,
    job: Job,
    requires: tuple[str, ...],
    workers: dict[str, Candidate],
    faults: dict[str, Unfit | Verdict | None],
) -> Wait:
    """What a pending job lacks, by the workers that come closest to running it."""
    found = set(faults.values())
    if Unfit.BUSY in found:
        return Wait(what=Waits.SLOT)
    if Verdict.COOLDOWN in found:
        until_ms = min((until for who, until in job.cooling if who in workers), default=0)
        return Wait(what=Waits.COOLDOWN, until_ms=until_ms)
    if Verdict.NOT_ROUTED in found:
        return Wait(what=Waits.ROUTE, node=control.route_for(job.kind) or "")
    if any(isinstance(fault, Verdict) for fault in found):
        return Wait(what=Waits.AUTHORITY)
    if Unfit.LABELS in found:
        have = [one.labels for one in workers.values() if faults[one.did] is Unfit.LABELS]
        nearest = min((selection.missing(requires, labels) for labels in have), key=len)
        return Wait(what=Waits.LABELS, labels=nearest)
    return Wait(what=Waits.WORKER)
