"""What a full node's replica says about the jobs that other jobs wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.authority.rules import Rules
from antiphon.core.authority.scope import scope_of
from antiphon.core.derivations.limit_use import LimitUse
from antiphon.core.derivations.offer_derivation import Derived, Predecessor, derive
from antiphon.core.families.jobs.ops import JobComplete, JobResolve, JobSchedule, JobYield
from antiphon.core.families.jobs.state import Job, State

if TYPE_CHECKING:
    from antiphon.core.record.op import Op
    from antiphon.runtime.node.full_node import FullNode

MOST_LABELLED: Final = 1_000_000


class Predecessors:
    """Answers what `offer_derivation` and the coordinator ask, from one node's replica."""

    def __init__(self, node: FullNode) -> None:
        self.node = node

    def state(self, key: tuple[str, str], *, before: int) -> State | None:
        """The state of a job that was submitted before this record; None if there is none."""
        job = self.node.replica.job_lane(*key).job
        return None if job is None or job.scheduled_seq >= before else job.state

    def derive(self, job: Job) -> Derived | None:
        """What the log says should be written about a waiting job."""
        schedule = self._op(job.scheduled_seq)
        if not isinstance(schedule, JobSchedule):
            return None
        return derive(job, schedule.body.manifest, self._find, self._look, self._may_read)

    def text(self, of: tuple[str, str], name: str) -> str | None:
        """The text of an output of a job that has ended."""
        job = self._find(of)
        outputs = self._look(job).outputs if job is not None else ()
        return next((one.text for one in outputs if one.name == name), None)

    def _find(self, key: tuple[str, str]) -> Job | None:
        return self.node.replica.job_lane(*key).job

    def _look(self, job: Job) -> Predecessor:
        op = self._op(job.ended_seq) if job.is_terminal else None
        if isinstance(op, JobComplete):
            return Predecessor(job, op.body.outputs, op.body.error)
        if isinstance(op, JobResolve):
            return Predecessor(job, op.body.outputs)
        return Predecessor(job, (), op.body.error if isinstance(op, JobYield) else None)

    def _op(self, seq: int) -> Op | None:
        replica, session = self.node.replica, self.node.session
        stored = replica.record(seq)
        if stored is None:
            replica.flush()
            stored = replica.record(seq)
        return None if stored is None else session.open(stored.record).op

    def _may_read(self, node: str, kind: str) -> bool:
        session = self.node.session
        now_ms = session.wall.now_ms()
        control = session.history.newest(now_ms)
        if control is None:
            return False
        scope = scope_of(control, session.protocol.branches, node, now_ms // 1000)
        return scope.admits(kind, *READ_BY)


def limit_use_in(node: FullNode, rules: Rules) -> LimitUse:
    """How much of the limits is in use, as the replica has it."""
    replica, use = node.replica, LimitUse()
    replica.flush()
    for job in replica.waits.labelled(limit=MOST_LABELLED):
        use.see(replica.job_lane(job.kind, job.id).job or job)
    now_ms = node.session.wall.now_ms()
    for limit in rules.limits:
        if limit.rate is not None:
            since_ms = now_ms - limit.per_ms
            use.offered(
                limit.label, replica.waits.offered_since(limit.label, since_ms, limit=limit.rate)
            )
    return use
