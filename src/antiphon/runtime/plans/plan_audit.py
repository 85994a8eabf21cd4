"""What every full node checks of the coordinator's derivations (spec §7.4).

The reducer sees a derived job and its plan, and nothing else. Whether the plan still stood, whether
its expression has the tick, and whether the cause ended as the plan says is on other lanes, and
depends on time zone data. A node that follows the log derives it again, and logs an error that
names the difference. A false derivation can only waste work: it is a job that the plan's author
could have submitted itself. How much of it is counted too, by party and from commit times alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.subject_rights import WHOLE
from antiphon.core.derivations.derived_use import RateAudit, cost_of, party_of_derived
from antiphon.core.families.jobs.derivation import Cause, Cron, Reaction, Tick, depth_of
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import Plan, plan_key
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Malformed
from antiphon.runtime.plans.cron_ticks import CronTicks
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import Record
    from antiphon.runtime.node.full_node import Applied, FullNode

PASSING_MS: Final = 60_000
"""A job may be derived so long after its plan was dropped: the two may have passed each other."""

_log = LazyLogger(__name__)


class PlanAudit:
    """Derives again what the coordinator derived."""

    def __init__(self, node: FullNode) -> None:
        self.node = node
        self._rates = RateAudit()

    def applied(self, applied: Applied) -> None:
        """Check a record that was just applied."""
        op = applied.opened.op
        if not isinstance(op, JobSchedule) or op.body.derived is None:
            return
        if applied.verdict is not Verdict.OK:
            return
        why = self.difference(op, applied.record.seq, applied.record.commit_ms)
        why = why or self._excess(applied.after, applied.record)
        if why:
            _log.error(
                "plan_mismatch",
                record=applied.record.seq,
                kind=op.body.kind,
                coordinator=op.author,
                why=why,
            )

    def difference(self, op: JobSchedule, seq: int, commit_ms: int) -> str:
        """How a derived job differs from what follows here; empty if it does not."""
        put_seq, plan_id = op.deps[0]
        put = self.node.look_up(put_seq)
        if not isinstance(put, PlanPut):
            return ""
        plan = self.node.replica.lane(plan_key(put.body.kind, put.body.name)).state
        if not isinstance(plan, Plan):
            return f"the plan {put.body.name} was never accepted"
        if plan.op_id != plan_id or plan.is_dropped:
            if commit_ms - plan.hlc[0] <= PASSING_MS:
                return ""
            return f"the plan {put.body.name} was dropped or replaced before"
        match op.body.derived, plan.body.trigger:
            case Tick(tick_ms=tick_ms), Cron() as cron:
                return self._tick_difference(cron, tick_ms)
            case Cause() as cause, Reaction() as reaction:
                return self._cause_difference(plan, cause, reaction, seq)
            case _:
                return ""  # the reducer has rejected it

    def _excess(self, job: Job, record: Record) -> str:
        """Count a derived job; how its party's rate is exceeded, or empty."""
        session, at_ms = self.node.session, record.commit_ms
        control = session.history.at(record.seq, at_ms) or session.control
        party = party_of_derived(control, job)
        return self._rates.excess(control, party, at_ms, cost_of(job.replicas))

    def _tick_difference(self, cron: Cron, tick_ms: int) -> str:
        try:
            if CronTicks(cron.at, cron.zone).has(tick_ms):
                return ""
        except Malformed as problem:
            return problem.message
        return (
            f"{cron.at!r} in {cron.zone} has no tick at {tick_ms} by this machine's time zone data"
        )

    def _cause_difference(self, plan: Plan, cause: Cause, reaction: Reaction, seq: int) -> str:
        job = job_lane(self.node.replica, cause.kind, cause.job).job
        named = f"{cause.kind} {cause.job[:8]}"
        if job is None:
            is_whole = self.node.replica.reads == WHOLE
            return f"its cause {named} does not exist" if is_whole else ""
        if job.replica_of or not job.is_terminal or not reaction.counts(job.state.value):
            return f"its cause {named} is {job.state.value}, not {reaction.on}"
        if not plan.put_seq < job.ended_seq < seq:
            return f"its cause {named} ended before the plan was put"
        if job.ended_ms != cause.ended_ms:
            return f"its cause {named} ended at {job.ended_ms}, not at {cause.ended_ms}"
        return "" if cause.depth == _depth_after(job) else f"its depth is {_depth_after(job)}"


def _depth_after(job: Job) -> int:
    return depth_of(job.derived) + 1
