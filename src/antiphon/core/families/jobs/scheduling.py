"""The job that a first schedule creates (spec §7.2).

Whatever a job may do later is bounded here: how long it is leased, how often it is tried, until
when it may begin. A schedule on behalf of somebody else, a replica's or a plan's, is judged as
theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UnsetType
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs import planned, questions, replicas
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.family import Moved
from antiphon.core.manifest import blobs_read, results_read, stored_arguments
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.rules import Rules
    from antiphon.core.families.jobs import ops
    from antiphon.core.family import At
    from antiphon.core.record.op import Op


def scheduled(op: ops.JobSchedule, at: At) -> Job | Moved | Verdict:
    """The job that a first schedule creates, or the verdict why not."""
    body, rules = op.body, at.control.rules
    wall_ms, author = op.hlc[0], op.author
    lease_ms = body.lease_ms or rules.lease_ms
    lease_ms_max = body.lease_ms_max or max(lease_ms, rules.lease_ms_max)
    if not rules.lease_min_ms <= lease_ms <= lease_ms_max <= rules.lease_max_ms:
        return Verdict.LEASE
    attempts_max = body.retry.attempts or rules.attempts
    if attempts_max > rules.attempts_max:
        return Verdict.ATTEMPTS
    if not rules.may_name(body.kind, body.concurrency or ""):
        return Verdict.LIMIT
    not_before_ms = body.not_before or 0
    if not_before_ms > wall_ms + rules.horizon_ms:
        return Verdict.DELAY
    # A delay is no part of the window to start, and every wait ends.
    begin_ms = max(wall_ms, not_before_ms)
    start_by_ms = body.start_by if body.start_by is not None else begin_ms + rules.start_by_ms
    latest_ms = begin_ms + rules.horizon_ms
    replica_until_ms = replicas.until_ms(op) if body.replicas is not None else 0
    start_by_ms = min(replica_until_ms or start_by_ms, latest_ms)
    start_window_ms = start_by_ms - begin_ms
    arguments, ulid = stored_arguments(body.manifest), body.manifest.ulid
    if start_window_ms <= 0:
        return Verdict.TOO_LATE
    if replicas.is_contradictory(body):
        return Verdict.REPLICAS
    asked = questions.schedule_fault(body)
    if asked is not None:
        return asked
    on_behalf: Op | None = None
    plan_name = ""
    if body.replica is not None:
        found = replicas.parent_of(op, at)
        if isinstance(found, Verdict):
            return found
        replica_until_ms = replicas.until_ms(found)
        on_behalf = replace(found, hlc=op.hlc)
        op = replace(op, author=on_behalf.author, auth=on_behalf.auth)
    elif body.derived is not None:
        plan = planned.plan_of(op, at)
        if isinstance(plan, Verdict):
            return plan
        plan_name = plan.body.name
        on_behalf = op = planned.as_its_author(op, plan)
    job = Job(
        kind=body.kind,
        id=at.key.name,
        state=State.WAITING if body.waits else State.PENDING,
        scheduler=op.author,
        call_auth=op.auth,
        plan=op.deps[0][1] if body.derived is not None else "",
        plan_name=plan_name,
        derived=body.derived,
        scheduled_seq=at.seq,
        scheduled_ms=at.commit_ms,
        hlc=op.hlc,
        hlc_author=author,
        priority=body.priority,
        replicas=body.replicas or 0,
        quorum=body.quorum or 0,
        replica_of=body.replica.of if body.replica is not None else "",
        replica_index=body.replica.index if body.replica is not None else 0,
        parent_seq=op.deps[0][0] if body.replica is not None else 0,
        alias="" if isinstance(ulid, UnsetType) else ulid,
        not_before_ms=not_before_ms,
        concurrency=body.concurrency or "",
        after=body.predecessors,
        after_any_outcome=body.after_any_outcome,
        waiting_seq=at.seq,
        results_read=len(results_read(body.manifest)),
        start_by_ms=start_by_ms,
        start_window_ms=start_window_ms,
        calls=0 if body.waits else 1,
        called_ms=at.commit_ms,
        recall_after_ms=rules.offer_after_ms,
        attempts_max=attempts_max,
        lease_ms=lease_ms,
        lease_ms_max=lease_ms_max,
        tenure_ms_max=_tenure_ms_max(body.manifest.timeout, rules),
        reads=blobs_read(body.manifest),
        arguments=arguments.hash if arguments is not None else "",
        charge_to=(body.budget.charge_to or "") if body.budget is not None else "",
        is_asked_again=manifest.is_asked_again(body.manifest),
        replica_until_ms=replica_until_ms,
        question=body.question,
    )
    # Whoever submitted the parent, or wrote the plan, must still be allowed to.
    return job if on_behalf is None else Moved(Verdict.OK, job, on_behalf=on_behalf)


def _tenure_ms_max(timeout_s: int, rules: Rules) -> int:
    """The attempt's timeout, and the longest lease for what comes before and after it.

    An honest worker stops in time by itself; this bounds one that only keeps renewing.
    """
    if not timeout_s:
        return 0
    return timeout_s * 1000 + rules.lease_max_ms
