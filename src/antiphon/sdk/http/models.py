"""What HTTP answers and reads under `/v1`, as types: the OpenAPI document is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from antiphon.core.families.erasures.state import Erasure
from antiphon.core.families.jobs.state import Job, State
from antiphon.sdk.defaults import StateName
from antiphon.sdk.queries.namespace import DocumentLine, KindCounts
from antiphon.sdk.queries.record_lists import Refusal
from antiphon.sdk.questions.namespace import OpenQuestion

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
    forgotten_by: str = ""
    """Who had what it was given and what it returned removed; empty if nobody did."""
    forgotten_ms: Stamp | None = None


def job_view(job: Job, order: Erasure | None = None) -> JobView:
    """A job as it is shown; `order` if it was forgotten."""
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
        forgotten_by=order.by if order is not None else "",
        forgotten_ms=order.at_ms if order is not None else None,
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
    """A node that is online, or died within the last day."""

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
    level: str
    """What its silence means: `alive`, `warn`, `alert`, `critical`, `dead`."""


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
    by: str
    """The node that signed it; empty: it follows from what this node knows."""
    ends_with: str
    """What ends it, in words."""
    count: int
    """How many jobs it is about."""
    error: str
    """Of a group of dead jobs: how they ended, by which the group is retried or dismissed."""


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


class QuestionList(Struct, frozen=True, kw_only=True):
    """A page of questions that nobody has answered, the oldest first."""

    items: list[OpenQuestion]
    next: str


class QuestionView(OpenQuestion, frozen=True, kw_only=True):
    """A question, open or not."""

    state: State
    answer: Any
    """What was answered; null before that."""
    answered_by: str
    """The key that signed the answer; empty before that, and where several people agreed."""


class AnswerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer: one of the choices, a text, or what the schema describes."""

    answer: Any


class AnswerGiven(Struct, frozen=True, kw_only=True):
    """An answer that is on the log."""

    id: str
    kind: str
    outcome: str
    signed_by: str
    """The key that signed it: it is that key's answer, whoever sent the request."""
    is_new: bool
    """False if this key had given the same answer already."""


class CostLineView(Struct, frozen=True, kw_only=True):
    """What some jobs cost."""

    name: str
    """The kind, the node's key or the account; empty for all together."""
    jobs: int
    succeeded: int
    beats_milli: int
    amounts: dict[str, int]
    """In billionths, by currency."""
    without: int
    """Jobs that ran and of which no cost is known."""
    partial: int
    """Jobs in whose cost something was not measured."""


class CostView(Struct, frozen=True, kw_only=True):
    """What the jobs that ended cost, the most expensive first; at most 500 lines."""

    by: Literal["kind", "node", "account"]
    lines: list[CostLineView]
    total: CostLineView


class SendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to an agent."""

    to: Annotated[str, Meta(min_length=1, max_length=400)]
    """An address, `did:key:…/name`, or an alias, with `/name` for an agent of that node."""
    payload: Any = None
    kind: Annotated[str, Meta(min_length=1, max_length=200)] = "message"
    thread: Annotated[str, Meta(max_length=128)] = ""
    priority: Annotated[int, Meta(ge=0, le=3)] = 0
    ttl: Annotated[str, Meta(max_length=64)] | None = None
    """How long it is of use: `2h`."""
    in_reply_to: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")] = ""


class MessageSent(Struct, frozen=True, kw_only=True):
    """A message that is stored in its receiver's inbox."""

    id: str
    sender: str
    """The address that it comes from."""


class ThreadView(Struct, frozen=True, kw_only=True):
    """A thread of an inbox."""

    thread: str
    messages: int
    oldest_ms: Stamp
    senders: tuple[str, ...]
    """Those of its oldest messages."""


class ThreadList(Struct, frozen=True, kw_only=True):
    """A page of the threads of an inbox."""

    items: list[ThreadView]
    next: str


class TakeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages to hand out."""

    agent: Annotated[str, Meta(max_length=64)] | None = None
    """Whose inbox, among the agents of the node's key."""
    limit: Annotated[int, Meta(ge=1, le=64)] = 1
    lease: Annotated[str, Meta(max_length=64)] = "2m"
    """A message that is not acknowledged for so long is handed out again."""
    wait: Annotated[float, Meta(ge=0, le=5)] = 0.0
    """If there is none, so many seconds are waited for one."""
    thread: Annotated[str, Meta(max_length=128)] = ""


class MessageView(Struct, frozen=True, kw_only=True):
    """A message that was handed out to you."""

    id: str
    receipt: int
    """For `ack`: it says that it is you who has the message."""
    attempt: int
    sender: str
    to: str
    kind: str
    thread: str
    priority: int
    in_reply_to: str
    sent_ms: Stamp
    leased_until_ms: Stamp
    payload: Any


class TakenMessages(Struct, frozen=True, kw_only=True):
    """Messages that were handed out."""

    items: list[MessageView]


class AckBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which inbox a message is in, and the receipt that it came with."""

    agent: Annotated[str, Meta(max_length=64)] | None = None
    receipt: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    """0: whoever has it."""


class Acknowledged(Struct, frozen=True, kw_only=True):
    """A message that is not handed out again."""

    id: str


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


class HookDone(Struct, frozen=True, kw_only=True):
    """What a webhook's request became: a job, or the question that it answered."""

    id: str
    kind: str
    is_new: bool
    """False if the same request came before."""


class LinkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a link opens, and for how long."""

    lasts: Annotated[str, Meta(max_length=64)] = field(default="2h", name="for")
    """At most `30d`."""
    outputs: bool = False
    """Whether it opens what the job wrote and prints, and its bundle, too."""


class LinkMade(Struct, frozen=True, kw_only=True):
    """A link to one job. Whoever has it can look at the job until then."""

    job: str
    token: str
    path: str
    """What follows the node's address."""
    until_ms: Stamp


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
