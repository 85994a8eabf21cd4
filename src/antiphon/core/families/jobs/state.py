"""A job's state as derived from the log, and questions about it (spec §7.2).

The transitions are in `antiphon.core.families.jobs.table`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.cost.job_cost import Cost, Spent
from antiphon.core.families.jobs.derivation import Derivation
from antiphon.core.families.jobs.ops import Checkpoint, Result
from antiphon.core.families.jobs.priority import PRIORITIES, Priority, rank
from antiphon.core.family import Lane, Over
from antiphon.core.proof.answer import Question
from antiphon.core.record.branches import LaneKey

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control


class State(StrEnum):
    """The states of a job."""

    WAITING = "waiting"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"

    @property
    def is_terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self in TERMINAL


TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.ABORTED})
HELD: Final = frozenset({State.CLAIMED, State.RUNNING})
RECALL_DOUBLINGS: Final = 6
RETRY_LOOK_MS: Final = 1_000
"""How soon to look again at a job whose lease should have ended by now."""
OPEN: Final = frozenset({State.WAITING, State.PENDING})


class RunArtifacts(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """How much the runs of a job have stored before its end; the records themselves say what."""

    steps: int = 0
    parts: int = 0
    snapshots: int = 0
    escalations: int = 0
    text_bytes: int = 0
    """Of all values that are in the records themselves."""
    outside: tuple[str, ...] = ()
    """Digests of those that are stored outside the log; none after the end of the job."""
    snapshots_digest: str = ""
    """Of the contents of all snapshots, one after the other: a completion names the same."""


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """One job's derived state."""

    kind: str
    id: str
    state: State
    scheduler: str
    """Who submitted it; of a derived job, the plan's author."""
    scheduled_seq: int
    scheduled_ms: int
    hlc: tuple[int, int]
    """Timestamp of the newest accepted op that changed this job; the next must be newer."""
    hlc_author: str
    priority: Priority
    alias: str = ""
    """The ULID in its manifest: a name for people that is no key, and that others may have too."""
    not_before_ms: int = 0
    """Wall time before which nobody may offer it; 0: none."""
    concurrency: str = ""
    """The label under which the coordinator counts it; empty: none."""
    after: tuple[tuple[str, str], ...] = ()
    """The jobs that had to end before it was first offered."""
    after_any_outcome: bool = False
    waiting_seq: int = 0
    """The op with which it last began to wait; jobs that it waits for are older on the log."""
    offered_seq: int = 0
    """The offer that last ended its wait."""
    offered_ms: int = 0
    """When its first wait ended."""
    results_read: int = 0
    """How many results of other jobs its manifest asks for."""
    results: tuple[Result, ...] = ()
    """Those results, once it was offered; none after the end."""
    children: tuple[tuple[str, str], ...] = ()
    """The jobs that its last tenure waits for, or waited for."""
    child_results: tuple[Result, ...] = ()
    continuations: int = 0
    """How often a tenure ended to wait for other jobs."""
    replicas: int = 0
    """How many jobs are run in its place; 0: it is run itself."""
    quorum: int = 0
    """How many of those have to agree."""
    replica_of: str = ""
    """The job that it is a replica of."""
    replica_index: int = 0
    parent_seq: int = 0
    """The schedule of that job."""
    fingerprint: str = ""
    """What the outputs are, to compare them: of a replica that succeeded, and of its parent."""
    start_by_ms: int
    """Wall time by which a waiting or pending job must be claimed."""
    start_window_ms: int
    attempts_max: int
    lease_ms: int
    lease_ms_max: int
    tenure_ms_max: int = 0
    """How long after its start a tenure can still be renewed; 0: no limit."""
    calls: int = 0
    """How often it was announced."""
    called_ms: int = 0
    recall_after_ms: int = 0
    """How long its last announcement may stay unanswered, by the rules at that time."""
    attempts: int = 0
    """Tenures that ended in expiry or an `error` yield."""
    yields: int = 0
    postponed: int = 0
    """How often the job itself asked for another try later."""
    plan: str = ""
    """The op id of the plan that it was derived from; empty if somebody submitted it."""
    plan_name: str = ""
    """The name of that plan."""
    derived: Derivation | None = None
    """The tick or the cause."""
    call_auth: tuple[str, ...] = ()
    """The delegations under which it was submitted."""
    checkpoint: Checkpoint | None = None
    """What its tenures have stored of the work so far; the next one continues from it."""
    replaced: tuple[str, ...] = ()
    """Digests of earlier checkpoints that are still kept; after the end, of all checkpoints."""
    forgotten: tuple[str, ...] = ()
    """Digests of checkpoints that were evicted before the end, the newest."""
    artifacts: RunArtifacts | None = None
    """What its runs have stored: steps, stream parts, snapshots; None: nothing."""
    claimer: str = ""
    fence: str = ""
    """The current tenure's fence; after the end, the last tenure's."""
    auth: tuple[str, ...] = ()
    """The delegations under which the current tenure was begun or last renewed."""
    auth_seq: int = 0
    is_audited: bool = False
    """Whether the model calls of the current tenure are audited; after the end, of the last."""
    deadline_ms: int = 0
    tenure_lease_ms: int = 0
    retry_after_ms: int = 0
    """Wall time before which nobody may claim again."""
    cooling: tuple[tuple[str, int], ...] = ()
    """Workers whose tenure expired, and until when they may not claim this job."""
    expired_fence: str = ""
    outcome: str = ""
    """Why it ended, in one word: succeeded, failed, exhausted, expired, cancelled."""
    ended_seq: int = 0
    ended_ms: int = 0
    reads: tuple[str, ...] = ()
    """Digests that it reads; empty once it has ended."""
    arguments: str = ""
    """The digest of its arguments where they are stored outside the log, and nobody else's."""
    stored: tuple[str, ...] = ()
    """Digests of its outputs that are stored outside the log; of its arguments, once it ended."""
    evicted: tuple[str, ...] = ()
    """Digests of its outputs that are no longer kept."""
    charge_to: str = ""
    """The account that its cost is counted for; empty: its submitter's."""
    spent: tuple[tuple[str, Spent], ...] = ()
    """What its tenures have cost, by node, as far as they said so."""
    is_asked_again: bool = False
    """Whether somebody may submit the same job again, so that it is archived later."""
    question: Question | None = None
    """What people are asked; None: a worker runs it."""
    replica_until_ms: int = 0
    """Of a job with replicas, and of these: until when there may be more. It is not archived
    before."""

    @property
    def account(self) -> str:
        """The account that its cost is counted for: the budget's, or its submitter's key."""
        return self.charge_to or self.scheduler

    @property
    def total_spent(self) -> Spent:
        """What all its tenures have cost together, as far as they said so."""
        found = Spent()
        for _, spent in self.spent:
            found = found.with_more(spent)
        return found

    def with_cost(self, node: str, cost: Cost | None) -> Job:
        """The job after a tenure of this node, which said what it cost; no verdict uses that."""
        if cost is None:
            return self
        spent = dict(self.spent)
        spent[node] = spent.get(node, Spent()).plus(cost)
        return replace(self, spent=tuple(spent.items()))

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can change this job any more."""
        return self.state in TERMINAL

    @property
    def is_dead_letter(self) -> bool:
        """Whether it ended without a result, and was not cancelled."""
        has_failed = self.is_terminal and self.state is not State.SUCCEEDED
        return has_failed and self.outcome != "cancelled"

    @property
    def is_open_under_limit(self) -> bool:
        """Whether the limit of its label counts it: it was offered and has not ended."""
        return self.state is State.PENDING or self.state in HELD

    @property
    def waits_for_time_alone(self) -> bool:
        """Whether any node may offer it for the first time, once `not_before_ms` has passed."""
        holds_back = self.awaited or self.concurrency or self.replicas
        return self.state is State.WAITING and not holds_back

    @property
    def awaited(self) -> tuple[tuple[str, str], ...]:
        """The jobs that have to end before it is offered, the next time or for the first time."""
        return self.children if self.continuations else self.after

    @property
    def waits_for_coordinator(self) -> bool:
        """Whether only the coordinator's offer can end its wait."""
        is_offered = not self.waits_for_time_alone and not self.replicas
        return self.state is State.WAITING and is_offered

    @property
    def waits_for_replicas(self) -> bool:
        """Whether it ends when enough of its replicas agree."""
        return self.state is State.WAITING and self.replicas > 0

    @property
    def tries(self) -> int:
        """Attempts begun: those that failed, and the one that is running or ended the job."""
        # The tenure that exhausts a job is already counted in its attempts.
        return self.attempts + (self.claimer != "" and self.outcome != "exhausted")

    @property
    def open_since_ms(self) -> int:
        """Since when a worker could claim it: submitted, offered, or its pause over.

        An announcement that repeats another does not count.
        """
        if self.continuations:
            return max(self.called_ms, self.retry_after_ms)
        return max(self.offered_ms or self.scheduled_ms, self.retry_after_ms)

    @property
    def recall_ms(self) -> int:
        """When a pending job is offered again.

        Some time after it last became claimable, and twice as long after each further offer.
        """
        since_ms = max(self.called_ms, self.hlc[0], self.retry_after_ms)
        return since_ms + (self.recall_after_ms << min(max(self.calls - 1, 0), RECALL_DOUBLINGS))

    def claimable_ms(self, now_ms: int, by: str) -> int:
        """When `by` should look at it again: the earliest known time at which it can be claimed."""
        if self.state in HELD:
            return max(self.deadline_ms, now_ms + RETRY_LOOK_MS)
        cooled_ms = max((until for who, until in self.cooling if who == by), default=0)
        return max(self.retry_after_ms, cooled_ms, now_ms)

    def is_claimable(self, now_ms: int, by: str) -> bool:
        """Whether `by` could claim it at this time, if routes allow it."""
        return (
            self.state is State.PENDING
            and now_ms >= self.retry_after_ms
            and now_ms <= self.start_by_ms
            and all(who != by or now_ms >= until for who, until in self.cooling)
        )


_CALL, _JOB = 1, 1 + len(PRIORITIES)
"""Indexes of tails: `wait` comes first, then the call subjects from here, then `job`."""


class JobLane(Lane, frozen=True, gc=False):
    """A job's lane: the last sequences on its five subjects, and the job."""

    tails: tuple[int, ...] = (0, 0, 0, 0, 0)
    state: Job | None = None

    def over(self, _control: Control) -> Over | None:
        """Once the job has ended, and can have no more replicas."""
        job = self.state
        if job is None or not job.is_terminal:
            return None
        return Over(max(self.time_ms, job.replica_until_ms), job.is_asked_again)

    @property
    def job(self) -> Job | None:
        """The job; None before it was submitted."""
        return self.state

    @property
    def call_tail(self) -> int:
        """What an offer names as `prev`, given the job's priority."""
        return self.tails[_CALL + rank(self.state.priority)] if self.state else 0

    @property
    def job_tail(self) -> int:
        """What the next op on the job's own subject names as `prev`."""
        return self.tails[_JOB]


EMPTY: Final = JobLane()


def job_key(kind: str, job_id: str) -> LaneKey:
    """The key of a job's lane."""
    return LaneKey("jobs", kind, job_id)
