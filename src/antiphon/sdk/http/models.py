"""What HTTP answers and reads under `/v1`, as types: the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from antiphon.core.families.jobs.state import Job, State
from antiphon.sdk.defaults import StateName
from antiphon.sdk.queries.namespace import DocumentLine, KindCounts, Refusal

MOST_ARGUMENTS = 64
Words = Annotated[str, Meta(max_length=1_000)]
Stamp = Annotated[int, Meta(ge=0, description="Milliseconds since 1970, in UTC.")]


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not answered (RFC 9457)."""

    type: str
    """A path: `/v1/problems/` and the reason. Verdicts of the log are among the reasons."""
    title: str
    status: int
    detail: str = ""
    reason: str = ""
    hint: str = ""


class JobView(Struct, frozen=True, kw_only=True):
    """A job."""

    id: str
    kind: str
    state: State
    outcome: str
    """Why it ended, in one word; empty before that."""
    priority: str
    submitter: str
    worker: str
    """Who holds it, or ran it last; empty if nobody did."""
    label: str
    plan: str
    """The name of the plan that it follows from; empty if somebody submitted it."""
    submitted_ms: Stamp
    ended_ms: Stamp | None
    not_before_ms: Stamp | None
    deadline_ms: Stamp | None
    attempts: int
    attempts_max: int
    after: tuple[tuple[str, str], ...]
    """Kind and id of the jobs that it waits for, or waited for."""


def job_view(job: Job) -> JobView:
    """A job as it is shown."""
    return JobView(
        id=job.id,
        kind=job.kind,
        state=job.state,
        outcome=job.outcome,
        priority=job.priority,
        submitter=job.scheduler,
        worker=job.claimer,
        label=job.concurrency,
        plan=job.plan_name,
        submitted_ms=job.scheduled_ms,
        ended_ms=job.ended_ms or None,
        not_before_ms=job.not_before_ms or None,
        deadline_ms=job.deadline_ms or None,
        attempts=job.tries,
        attempts_max=job.attempts_max,
        after=job.after,
    )


class JobList(Struct, frozen=True, kw_only=True):
    """A page of jobs, newest first."""

    items: list[JobView]
    next: str
    """The cursor of the next page, for `after`; empty if there is none."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many jobs are in each state that has any."""

    jobs: dict[StateName, int]


class KindList(Struct, frozen=True, kw_only=True):
    """A page of kinds with their jobs, by name."""

    items: list[KindCounts]
    next: str


class NodeView(Struct, frozen=True, kw_only=True):
    """A node that is online."""

    node: str
    alias: str
    role: str
    version: str
    agent: str
    kinds: tuple[str, ...]
    """Those that you may read."""
    labels: tuple[str, ...]
    silent_ms: int
    """Since its last heartbeat."""


class NodeList(Struct, frozen=True, kw_only=True):
    """A page of nodes."""

    items: list[NodeView]
    next: str


class PlanView(Struct, frozen=True, kw_only=True):
    """A plan that stands."""

    name: str
    kind: str
    when: str
    author: str
    problem: str
    """Why it derives nothing; empty if it runs."""
    next: list[str]
    """The next ticks, ISO 8601."""


class PlanList(Struct, frozen=True, kw_only=True):
    """A page of plans."""

    items: list[PlanView]
    next: str


class LockView(Struct, frozen=True, kw_only=True):
    """A lock that is held."""

    scope: str
    key: str
    node: str
    agent: str
    acquired: str
    expires: str
    is_expired: bool


class LockList(Struct, frozen=True, kw_only=True):
    """A page of locks."""

    items: list[LockView]
    next: str


class DocumentList(Struct, frozen=True, kw_only=True):
    """A page of documents, without their values."""

    items: list[DocumentLine]
    next: str


class RefusalList(Struct, frozen=True, kw_only=True):
    """A page of records that took no effect, newest first."""

    items: list[Refusal]
    next: str


class LimitView(Struct, frozen=True, kw_only=True):
    """A label, and how many unfinished jobs have it."""

    label: str
    at_once: int | None
    open: int
    waiting: int


class LimitList(Struct, frozen=True, kw_only=True):
    """A page of limits."""

    items: list[LimitView]
    next: str


class AttentionView(Struct, frozen=True, kw_only=True):
    """Something that needs attention."""

    service: str
    item: str
    reason: str
    since_ms: Stamp
    tries: int


class AttentionList(Struct, frozen=True, kw_only=True):
    """A page of what needs attention, newest first."""

    items: list[AttentionView]
    next: str


class ReportView(Struct, frozen=True, kw_only=True):
    """A bar report."""

    start_ms: Stamp
    end_ms: Stamp
    kpis: dict[str, float | None]
    alarms: list[str]


class ReportList(Struct, frozen=True, kw_only=True):
    """A page of bar reports, newest first."""

    items: list[ReportView]
    next: str


class PauseView(Struct, frozen=True, kw_only=True):
    """Jobs that nobody may begin: those that have all of what is given."""

    kind: str | None
    label: str | None
    plan: str | None
    by: str
    since_ms: Stamp
    reason: str


class PauseList(Struct, frozen=True, kw_only=True):
    """All pauses that are in force, oldest first."""

    items: list[PauseView]


class SubmitBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call of a task, by its kind."""

    kind: Annotated[str, Meta(min_length=1, max_length=200)]
    args: Annotated[list[Any], Meta(max_length=MOST_ARGUMENTS)] = []
    kwargs: Annotated[dict[str, Any], Meta(max_length=MOST_ARGUMENTS)] = {}
    priority: Literal["high", "normal", "low"] = "normal"
    delay: Annotated[str, Meta(max_length=64)] | None = None
    """The job begins no sooner than so long from now: `15m`."""
    timeout: Annotated[str, Meta(max_length=64)] | None = None
    """How long one attempt may run: `15m`."""
    attempts: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    requires: Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=16)] = []
    """Labels that a worker must have."""
    label: Annotated[str, Meta(max_length=128)] | None = None
    """The limit under which it is counted."""


class Submitted(Struct, frozen=True, kw_only=True):
    """A job that was submitted."""

    id: str
    kind: str
    is_new: bool
    """False if there was such a job already: the same idempotency key and the same arguments."""


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a job is cancelled."""

    reason: Words = ""


class Verified(Struct, frozen=True, kw_only=True):
    """What a valid bundle proves."""

    mesh: str
    owner: str
    """The key that everything depends on."""
    kind: str
    name: str
    """The job's id, or the name of whatever it is about."""
    records: int
    story: list[str]


class OutputView(Struct, frozen=True, kw_only=True):
    """Something that a job wrote; `/outputs/NAME` has its content."""

    name: str
    size: int
    hash: str
    """The BLAKE3 digest of its content."""
    type: str | None


class OutputList(Struct, frozen=True, kw_only=True):
    """What a job wrote."""

    items: list[OutputView]


class Envelope(Struct, frozen=True, kw_only=True):
    """A DSSE envelope: the proof that a job's completion carries."""

    payload: str
    payload_type: str = field(name="payloadType")
    signatures: list[dict[str, str]]


class OutputPiece(Struct, frozen=True, kw_only=True):
    """A piece of what a running job prints, or its progress."""

    id: str
    """The tenure and the number of the message in it."""
    stream: str
    """`stdout` or `stderr`; empty for progress."""
    at: int
    """Where it begins in its stream, in bytes."""
    text: str
    done: float | None
    note: str


class JobEvent(Struct, frozen=True, kw_only=True):
    """A record of a job's lane."""

    seq: int
    at_ms: Stamp
    op: str
    author: str
    verdict: str
    words: str


__all__ = ["JobView", "Problem", "job_view"]
