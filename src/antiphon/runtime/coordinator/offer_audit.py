"""Full nodes derive what the coordinator writes again, and name every difference (spec §7.3).

A false offer can only waste work: it begins a job too early, above a limit, or with a result that
is not its predecessor's. So can a replica that is not needed, or a job that is cancelled although
its replicas could agree. Nobody but the owner can replace a coordinator, so a difference is logged
as an error and kept for whoever looks (`antiphon doctor`), and nothing is written.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.derivations.derived_use import RateAudit, party_of_derived
from antiphon.core.derivations.limit_use import LimitUse, limit_of
from antiphon.core.families.jobs.ops import JobCancel, JobOffer, JobSchedule, OfferBody
from antiphon.core.families.jobs.state import Job
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.coordinator.predecessors import Predecessors, limit_use_in
from antiphon.runtime.coordinator.quorum_children import QuorumChildren
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op
    from antiphon.runtime.node.full_node import Applied, FullNode

DIFFERENCES_KEPT: Final = 100

log = LazyLogger(__name__)


class Difference(Struct, frozen=True):
    """What a coordinator wrote that does not follow from the log before it."""

    seq: int
    coordinator: str
    kind: str
    job: str
    what: str


class OfferAudit:
    """Watches what one full node applies."""

    def __init__(self, node: FullNode) -> None:
        """Give `applied` to the node's watchers."""
        self.node = node
        self.differences: deque[Difference] = deque(maxlen=DIFFERENCES_KEPT)
        self._guard = ItemGuard[tuple[str, str]](
            "offer audit", node.session, node.replica.attention
        )
        self._predecessors = Predecessors(node)
        self._quorums = QuorumChildren(node.replica, node.session)
        self._rates = RateAudit()
        self._use = LimitUse()
        self._rules: object = None

    def applied(self, applied: Applied) -> None:
        """Check a record that was just applied."""
        job, op = applied.after, applied.opened.op
        if not isinstance(job, Job) or applied.verdict is not Verdict.OK or op is None:
            return
        if not self.node.ready.is_set():
            self._rules = None  # counted from the replica once it is up to date
            return
        self._count(job, applied.opened.seq)
        what = self._difference(job, op, applied.opened.seq)
        if what:
            found = Difference(applied.opened.seq, op.author, job.kind, job.id, what)
            self.differences.append(found)
            self._guard.note(
                (job.kind, job.id), f"{what} (by the coordinator)", whose=job.scheduler
            )
            log.error("offer_differs", job=job.id, coordinator=op.author, what=what)

    def _count(self, job: Job, seq: int) -> None:
        rules = self.node.session.control.rules
        if self._rules is not rules:
            self._rules = rules
            self._use = limit_use_in(self.node, rules)
            return
        self._use.see(job)
        if job.concurrency and job.offered_seq == seq:
            self._use.offered(job.concurrency, [job.offered_ms])

    def _difference(self, job: Job, op: Op, seq: int) -> str:
        """How an op differs from what follows from the log; often empty."""
        control = self.node.session.control
        if job.replicas or job.replica_of:
            what = self._quorums.difference(control, job, op) or self._excess(job, op)
            if what:
                return what
        match op:
            case JobOffer() if job.offered_seq == seq:
                return self._result_difference(job, op) or self._count_difference(control, job)
            case JobCancel() if op.author == control.coordinator:
                is_derived = op.body.reason.startswith("predecessor:")
                return self._result_difference(job, op) if is_derived else ""
            case _:
                return ""

    def _excess(self, job: Job, op: Op) -> str:
        """Count a replica; how the rate of its party is exceeded, or empty."""
        if not isinstance(op, JobSchedule) or not job.replica_of or not self._quorums.counts(job):
            return ""
        session = self.node.session
        control = session.history.at(job.scheduled_seq, job.scheduled_ms) or session.control
        return self._rates.excess(control, party_of_derived(control, job), job.scheduled_ms, 1)

    def _result_difference(self, job: Job, op: JobOffer | JobCancel) -> str:
        derived = self._predecessors.derive(job) if job.awaited else None
        if job.awaited and derived is None:
            return "not every job that it waits for has ended"
        if derived is not None and type(derived.body) is not type(op.body):
            if isinstance(derived.body, OfferBody):
                return "it was cancelled, and every job that it waits for ended as it should"
            return f"it was offered, and should have been cancelled: {derived.body.reason}"
        if isinstance(op, JobOffer) and derived is not None and derived.body != op.body:
            return "its results are not those of the jobs that it waits for"
        return ""

    def _count_difference(self, control: Control, job: Job) -> str:
        limit = limit_of(control.rules, job.concurrency)
        count = self._use.open(job.concurrency)
        if limit is None or limit.at_once is None or count <= limit.at_once:
            return ""
        return f"{count} jobs are offered under {limit.label}, which allows {limit.at_once}"
