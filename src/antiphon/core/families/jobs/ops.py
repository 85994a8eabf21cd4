"""The eleven ops about a job, each with its body (spec §7.2).

A job's lane is every record on its wait, call and job subjects.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, field

from antiphon.core.authority.job_rights import ANSWERS, CALLED_BY, READ_BY, WORKED_BY
from antiphon.core.cost.job_cost import Cost
from antiphon.core.families.jobs.derivation import Cause, Derivation, Tick
from antiphon.core.families.jobs.priority import PRIORITIES, Priority, place_of
from antiphon.core.manifest import Manifest, job_id, results_read
from antiphon.core.proof.answer import Answered, Question
from antiphon.core.proof.output import Output
from antiphon.core.proof.statement import Proof
from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.op import Body, Count, Digest, Kind, Label, Op, Seq, Text, WallMs
from antiphon.core.tempo.budget import Budget
from antiphon.core.tempo.score import Score

WAIT: Final = Branch(stem="jobs", variants=("wait",), read_by=READ_BY, written_by=CALLED_BY)
CALL: Final = Branch(
    stem="jobs",
    variants=tuple(map(place_of, PRIORITIES)),
    read_by=READ_BY,
    written_by=CALLED_BY,
)
JOB: Final = Branch(stem="jobs", variants=("job",), read_by=READ_BY, written_by=WORKED_BY)

Fence = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
JobId = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
JobKey = tuple[Kind, JobId]
"""A job as another op names it: its kind and its id."""
ErrorName = Annotated[str, Meta(min_length=1, max_length=255)]
TRACE_PATTERN: Final = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z"
MAX_AFTER: Final = 1024
MIN_QUORUM: Final = 2
MAX_REPLICAS: Final = 16
MAX_REPLACED: Final = 64
"""Checkpoints of one job that were replaced and not evicted yet."""
MAX_PROGRESS_NOTE: Final = 200
MAX_ARTIFACTS: Final = {"step": 1_000, "part": 4_096, "snapshot": 256, "escalation": 16}
"""How many of each sort the runs of one job may store."""
MAX_ARTIFACT_TEXT: Final = 16 * 1024
"""Characters of an artifact's value in its record; a longer one is stored outside the log."""
MAX_ARTIFACT_TEXTS: Final = 4 * 1024 * 1024
"""Bytes of the values of one job in its records, all together."""
MAX_ARTIFACTS_OUTSIDE: Final = 1_000
"""How many of a job's artifacts may be stored outside the log."""
MAX_ARTIFACT_NAME: Final = 200
ArtifactSort = Literal["step", "part", "snapshot", "escalation"]
"""A step's result, a part of a stream, a snapshot of a model call, or why somebody is needed."""
DEGRADED: Final = "degraded"
"""The output that says why a result is not what the handler would have made in its own time."""
SHORT: Final = 8
"""Digits of a job id that people see."""


class Retry(Body, frozen=True):
    """How a job is retried. The log enforces `attempts`; the rest guides the worker."""

    attempts: Annotated[int, Meta(ge=1, le=1000)] | None = None
    base_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 1_000
    cap_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 60_000
    give_up_on: Annotated[tuple[ErrorName, ...], Meta(max_length=64)] = ()
    """Names of errors that end the job without another attempt; subclasses are included."""


class Replica(Body, frozen=True):
    """Says that a job is one of the replicas of another one, and which."""

    of: JobId
    index: Annotated[int, Meta(ge=0, lt=2 * MAX_REPLICAS)]


class ScheduleBody(Body, frozen=True):
    """Submits a job. The manifest says what to run; the rest says when, where and how often."""

    kind: Kind
    manifest: Manifest
    priority: Priority = "normal"
    retry: Retry = Retry()
    lease_ms: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    lease_ms_max: Annotated[int, Meta(ge=1, le=MAX_INTEGER)] | None = None
    start_by: WallMs | None = None
    not_before: WallMs | None = None
    """When it may begin at the earliest: any node with the right offers it from then on."""
    concurrency: Label | None = None
    """The label under which the coordinator counts it, and offers it when there is room."""
    after: Annotated[tuple[JobKey, ...], Meta(max_length=MAX_AFTER)] = ()
    """Jobs that have to end first, besides those whose results it reads."""
    after_any_outcome: bool = False
    """Whether it also begins after jobs that failed; not after those whose results it reads."""
    requires: Annotated[tuple[Label, ...], Meta(max_length=32)] = ()
    retry_of: JobId | None = None
    replicas: Annotated[int, Meta(ge=MIN_QUORUM, le=MAX_REPLICAS)] | None = None
    """How many jobs the coordinator makes of it, which are run in its place."""
    quorum: Annotated[int, Meta(ge=MIN_QUORUM, le=MAX_REPLICAS)] | None = None
    """How many of those have to agree, each run for somebody else."""
    replica: Replica | None = None
    """Of which job it is a replica; only the coordinator submits those."""
    score: Score | None = None
    """Its beats: how long each phase may take and how long it may wait; workers keep to it."""
    budget: Budget | None = None
    """What it may use up; its worker ends it as failed when it is over."""
    trace: Annotated[str, Meta(pattern=TRACE_PATTERN)] | None = None
    """The W3C `traceparent` of its submission; no verdict depends on it."""
    derived: Derivation | None = None
    """What it was derived from by the coordinator: a tick or a cause of the plan that it names."""
    question: Question | None = None
    """What people are asked: then no worker runs it. Its manifest has the question's digest."""

    @property
    def waits(self) -> bool:
        """Whether the job begins as waiting and needs an offer, or its replicas' results."""
        return (
            self.not_before is not None
            or self.concurrency is not None
            or self.replicas is not None
            or bool(self.predecessors)
        )

    @property
    def is_derived(self) -> bool:
        """Whether the coordinator wrote it for somebody else: for a plan, or as a replica."""
        return self.derived is not None or self.replica is not None

    @property
    def predecessors(self) -> tuple[JobKey, ...]:
        """The jobs that have to end before this one is offered, each once."""
        read = results_read(self.manifest)
        if not read and not self.after:
            return ()
        return tuple(dict.fromkeys((*self.after, *(one.of for one in read))))


class _OnJob(Body, frozen=True):
    kind: Kind
    job: JobId


class Failure(Body, frozen=True):
    """What went wrong, for people; retry rules match `name`."""

    name: ErrorName
    message: Text = ""
    traceback: Text = ""
    """Where in the handler's code, if its worker and the mesh's rule `tracebacks` let it be kept.
    It stays on the job's own lane: jobs that wait for this one get the rest."""


class Result(Body, frozen=True):
    """The result of another job: its text, the digest of its content, or why there is none."""

    text: Annotated[str, Meta(max_length=128 * 1024)] | None = None
    hash: Digest | None = None
    size: Count | None = None
    outcome: Annotated[str, Meta(min_length=1, max_length=32)] | None = None
    """In one word, why a child has no result; its `error` may say more."""
    error: Failure | None = None
    is_answer: bool = False
    """Whether the child was a question to people."""

    @property
    def has_value(self) -> bool:
        """Whether it is a result, in exactly one of its two forms."""
        is_stored = self.hash is not None and self.size is not None
        return (self.text is not None) != is_stored and self.outcome is None


class OfferBody(_OnJob, frozen=True):
    """Announces a job: a waiting one becomes pending, a pending one is offered again."""

    priority: Priority = "normal"
    results: Annotated[tuple[Result, ...], Meta(max_length=MAX_AFTER)] = ()
    """What a waiting job asked for: the results that it reads, in the order of its inputs, or
    those of the jobs that its last tenure waited for."""


class Checkpoint(Body, frozen=True):
    """What a tenure stored of its work; the next one continues from it."""

    hash: Digest
    size: Count


class Progress(Body, frozen=True):
    """How far a tenure is, by its handler; for people."""

    permille: Annotated[int, Meta(ge=0, le=1000)]
    note: Annotated[str, Meta(max_length=MAX_PROGRESS_NOTE)] = ""


class ClaimBody(_OnJob, frozen=True):
    """Takes a pending job, or renews the claimer's own lease.

    With `fence` it can only renew that tenure. So a worker that lost its lease without noticing
    cannot begin a new tenure by mistake.
    """

    lease_ms: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    answers: bool = False
    """Whether its author is about to answer a question, which takes a permission of its own."""
    begin: bool = False
    fence: Fence | None = None
    beats_left: Count | None = None
    """How many beats the tenure still needs, for people; only a renewal says it."""
    checkpoint: Checkpoint | None = None
    """What the tenure has stored of its work; only a renewal names one."""
    progress: Progress | None = None
    """How far the tenure is; only a renewal says it."""


class StartBody(_OnJob, frozen=True):
    """The claimer starts running the job."""

    fence: Fence


class CompleteBody(_OnJob, frozen=True):
    """Ends a job with an outcome; rejected without a valid proof."""

    fence: Fence
    status: Literal["succeeded", "failed"]
    outputs: Annotated[tuple[Output, ...], Meta(max_length=1024)] = ()
    error: Failure | None = None
    exit: Annotated[int, Meta(ge=-255, le=255)] | None = None
    calls: Annotated[int, Meta(ge=0, le=MAX_ARTIFACTS["snapshot"])] | None = None
    """How many model calls its runs have made; said where these are audited, and then each of
    them has a snapshot among the outputs."""
    proof: Proof | None = None
    answered: Answered | None = None
    """In place of a proof, where the job is a question."""


class YieldBody(_OnJob, frozen=True):
    """Gives the job back, with a reason. With `after` it waits until other jobs have ended."""

    fence: Fence
    reason: Literal[
        "error", "overrun", "later", "drain", "battery", "sleep", "lost", "after", "other"
    ]
    """`error` and `overrun` are attempts; `later` (the job asked for another try) has a cap of its
    own, and so have all others together."""
    after: Annotated[tuple[JobKey, ...], Meta(max_length=MAX_AFTER)] = ()
    until: WallMs | None = None
    """How long the jobs in `after` may take: the job waits at least so long."""
    retry_after_ms: Count = 0
    error: Failure | None = None
    checkpoint: Checkpoint | None = None
    cost: Cost | None = None
    """What the tenure has cost; a completion says that in its proof."""


class ArtifactBody(_OnJob, frozen=True):
    """Stores what a run has made so far: later tenures of the job find it."""

    fence: Fence
    as_: ArtifactSort = field(name="as")
    name: Annotated[str, Meta(min_length=1, max_length=MAX_ARTIFACT_NAME)]
    n: Annotated[int, Meta(ge=0, lt=max(MAX_ARTIFACTS.values()))]
    """How many of the same sort the job had before: none can be left out or stored twice."""
    of: Digest | None = None
    """What it was made of: for a step, the digest of its arguments."""
    value: Annotated[str, Meta(max_length=MAX_ARTIFACT_TEXT)] | None = None
    digest: Digest | None = None
    """Of the content, where that is stored outside the log, with its size."""
    size: Count | None = None

    @property
    def has_value(self) -> bool:
        """Whether it has content, in exactly one of its two forms."""
        if self.value is not None:
            return self.digest is None and self.size is None
        return self.digest is not None and self.size is not None


class ExpireBody(_OnJob, frozen=True):
    """Ends a tenure whose deadline passed (`fence`), or a wait that lasted past `start_by`."""

    fence: Fence | None = None


class ResolveBody(_OnJob, frozen=True):
    """Ends a job by a quorum of its replicas: those, where each ended, and what they agree on."""

    children: Annotated[tuple[tuple[JobId, Seq], ...], Meta(max_length=MAX_REPLICAS)]
    outputs: Annotated[tuple[Output, ...], Meta(max_length=1024)] = ()


class CancelBody(_OnJob, frozen=True):
    """Ends a job that has not ended."""

    reason: Text = ""


class EvictBody(_OnJob, frozen=True):
    """Says that an output's bytes are no longer kept; the record of the output stays."""

    hash: Digest


class JobSchedule(Op, frozen=True, tag="job.schedule"):
    """Submits a job."""

    body: ScheduleBody
    COMMAND: ClassVar[str] = "/job/schedule"
    BRANCH: ClassVar[Branch] = CALL

    def subject(self, mesh: str) -> str:
        """With the announcements of its priority, or with the waiting jobs if it needs an offer."""
        body, name = self.body, job_id(self.body.manifest)
        if body.waits or body.question is not None:
            return WAIT.subject(mesh, body.kind, name, "wait")
        return CALL.subject(mesh, body.kind, name, place_of(body.priority))

    def words(self) -> str:
        """In a sentence."""
        body = self.body
        what = f"{body.kind} with {body.priority} priority"
        if body.replica is not None:
            what = f"it as replica {body.replica.index + 1} of {body.replica.of[:SHORT]}"
        if body.question is not None:
            return f"asked: {body.question.text}{_wait(self.hlc[0], body)}"
        return f"submitted {what}{_origin(body)}{_wait(self.hlc[0], body)}"


class JobOffer(Op, frozen=True, tag="job.offer"):
    """Announces a job."""

    body: OfferBody
    COMMAND: ClassVar[str] = "/job/complete"
    BRANCH: ClassVar[Branch] = CALL

    def subject(self, mesh: str) -> str:
        """With the announcements of its priority."""
        return CALL.subject(mesh, self.body.kind, self.body.job, place_of(self.body.priority))

    def words(self) -> str:
        """In a sentence."""
        return f"offered it{_results(len(self.body.results))}"


class _JobOp(Op, frozen=True):
    """What happens to a job after it was submitted."""

    COMMAND: ClassVar[str] = "/job/complete"
    BRANCH: ClassVar[Branch] = JOB

    def subject(self, mesh: str) -> str:
        """The job's own subject."""
        return f"ap.{mesh}.jobs.job.{self.body.kind}.{self.body.job}"


class JobClaim(_JobOp, frozen=True, tag="job.claim"):
    """Takes or renews a lease."""

    body: ClaimBody
    COMMAND: ClassVar[str] = "/job/claim"

    @classmethod
    def command_of(cls, body: ClaimBody) -> str:
        """Another one for whoever answers a question."""
        return ANSWERS if body.answers else cls.COMMAND

    def words(self) -> str:
        """In a sentence."""
        body, lease = self.body, _seconds(self.body.lease_ms)
        if body.answers:
            return f"took it for {lease} to answer it"
        if body.fence is not None:
            return f"renewed the lease for {lease}{_kept(body)}"
        return f"claimed it for {lease}{' and started it' if body.begin else ''}"


class JobStart(_JobOp, frozen=True, tag="job.start"):
    """Starts running a job."""

    body: StartBody

    def words(self) -> str:
        """In a sentence."""
        return "started it"


class JobComplete(_JobOp, frozen=True, tag="job.complete"):
    """Ends a job with an outcome."""

    body: CompleteBody

    @classmethod
    def command_of(cls, body: CompleteBody) -> str:
        """Another one for whoever answers a question."""
        return cls.COMMAND if body.answered is None else ANSWERS

    def words(self) -> str:
        """In a sentence."""
        body = self.body
        if body.answered is not None:
            return f"answered: {body.outputs[0].text if body.outputs else ''}"
        why = f": {body.error.name}: {body.error.message}" if body.error else ""
        return f"completed it, {body.status}{why}{_degraded(body)}"

    def error_text(self) -> str:
        """The error of the last attempt."""
        return _error_text(self.body.error)


class JobYield(_JobOp, frozen=True, tag="job.yield"):
    """Gives a job back."""

    body: YieldBody

    def words(self) -> str:
        """In a sentence."""
        return f"gave it back{_reason(self.body)}"

    def error_text(self) -> str:
        """The error of this attempt."""
        return _error_text(self.body.error)


class JobArtifact(_JobOp, frozen=True, tag="job.artifact"):
    """Stores what a run has made so far."""

    body: ArtifactBody

    def words(self) -> str:
        """In a sentence."""
        body = self.body
        size = len(body.value.encode()) if body.value is not None else body.size or 0
        return f"stored the {body.as_} {body.name!r}, {size:,} bytes"


class JobExpire(_JobOp, frozen=True, tag="job.expire"):
    """Ends a lease or a wait whose time has passed."""

    body: ExpireBody

    def words(self) -> str:
        """In a sentence."""
        return f"expired {'the lease' if self.body.fence is not None else 'the wait'}"


class JobResolve(_JobOp, frozen=True, tag="job.resolve"):
    """Ends a job by a quorum of its replicas."""

    body: ResolveBody

    def words(self) -> str:
        """In a sentence."""
        named = ", ".join(child[:SHORT] for child, _ in self.body.children)
        return f"resolved it, succeeded: its replicas {named} agree"


class JobCancel(_JobOp, frozen=True, tag="job.cancel"):
    """Cancels a job."""

    body: CancelBody
    COMMAND: ClassVar[str] = "/job/cancel"

    def words(self) -> str:
        """In a sentence."""
        return f"cancelled it{': ' + self.body.reason if self.body.reason else ''}"

    def error_text(self) -> str:
        """Why it was cancelled."""
        return self.body.reason


class JobEvict(_JobOp, frozen=True, tag="job.evict"):
    """Evicts an output's bytes."""

    body: EvictBody
    COMMAND: ClassVar[str] = "/artifact/write"

    def words(self) -> str:
        """In a sentence."""
        short = self.body.hash.removeprefix("blake3:")[:12]
        return f"evicted the output {short}: its bytes may be deleted"


JobOp = (
    JobSchedule
    | JobOffer
    | JobClaim
    | JobStart
    | JobComplete
    | JobYield
    | JobArtifact
    | JobExpire
    | JobResolve
    | JobCancel
    | JobEvict
)


# --- in words ---------------------------------------------------------------------------------


def _origin(body: ScheduleBody) -> str:
    match body.derived:
        case Tick():
            return ", by a plan's cron"
        case Cause(kind=kind, job=job):
            return f", by a plan, since {kind} {job[:SHORT]} ended"
        case None:
            return ""


def _wait(wall_ms: int, body: ScheduleBody) -> str:
    if body.replicas is not None:
        return f"; {body.quorum} of {body.replicas} replicas have to agree"
    if body.predecessors:
        return f"; it begins after {_jobs(len(body.predecessors))}"
    if body.concurrency is not None:
        return f"; it waits for room under {body.concurrency}"
    if body.not_before is None:
        return ""
    return f"; it may begin {_seconds(max(body.not_before - wall_ms, 0))} later"


def _jobs(count: int) -> str:
    return "another job" if count == 1 else f"{count} other jobs"


def _results(count: int) -> str:
    if not count:
        return ""
    return " with a result" if count == 1 else f" with {count} results"


def _kept(body: ClaimBody | YieldBody) -> str:
    """What a renewal or a yield says beside."""
    words = ""
    if isinstance(body, ClaimBody) and body.beats_left is not None:
        words = f", with {body.beats_left} beats left"
    if body.checkpoint is not None:
        words += f", and stored a checkpoint of {body.checkpoint.size:,} bytes"
    if isinstance(body, ClaimBody) and body.progress is not None:
        words += f", {body.progress.permille // 10}% done"
    return words


def _degraded(body: CompleteBody) -> str:
    """Why the result is not what the handler would have made in its own time."""
    why = next((one.text for one in body.outputs if one.name == DEGRADED), None)
    return f", degraded: {why}" if why else ""


def _error_text(error: Failure | None) -> str:
    return "" if error is None else f"{error.name}: {error.message}"


def _reason(body: YieldBody) -> str:
    count = len(body.after)
    if count:
        return f" until {_jobs(count)} {'has' if count == 1 else 'have'} ended{_kept(body)}"
    why = f" ({body.error.name}: {body.error.message})" if body.error else ""
    if body.reason == "later":
        return f" for another try {_seconds(body.retry_after_ms)} later{why}{_kept(body)}"
    return f", reason {body.reason}{why}{_kept(body)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
