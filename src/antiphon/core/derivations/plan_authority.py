"""Whether a plan's author could submit its job now: what the reducer asks of every derived job.

Nothing here decides. The coordinator asks before it writes what would be rejected, and `antiphon
plan list` says why a plan no longer runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.authority.job_rights import READ_BY
from antiphon.core.authority.scope import scope_of
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.derivation import Cause, Cron, Derivation, Tick
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import as_its_author, derived_body
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.family import At
from antiphon.core.manifest import job_id
from antiphon.core.reducer import author_fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.authority.control import Control
    from antiphon.core.families.plans.state import Plan
    from antiphon.core.record.branches import Branch, LaneKey
    from antiphon.core.record.verdict import Verdict


def derived_key(plan: Plan, derived: Derivation) -> LaneKey:
    """The lane of the job that follows from a plan."""
    body = derived_body(plan.body, plan.op_id, derived)
    return job_key(plan.body.kind, job_id(body.manifest))


def example(plan: Plan) -> Derivation:
    """Something that could set off a plan, to ask what would be said about it."""
    trigger = plan.body.trigger
    if isinstance(trigger, Cron):
        return Tick(tick_ms=plan.put_ms + 1)
    return Cause(kind=plan.body.kind, job="0" * 64, ended_ms=0)


def fault(
    control: Control, plan: Plan, derived: Derivation, *, seq: int, at_ms: int
) -> Verdict | None:
    """Why the plan's author could not submit the derived job at this place, or None."""
    put = PlanPut(
        v=1,
        mesh=control.mesh,
        author=plan.author,
        hlc=(plan.put_ms, 0),
        prev=0,
        deps=(),
        auth=plan.auth,
        body=plan.body,
    )
    body = derived_body(plan.body, plan.op_id, derived)
    schedule = JobSchedule(
        v=1,
        mesh=control.mesh,
        author=control.coordinator,
        hlc=(at_ms, 0),
        prev=0,
        deps=((plan.put_seq, plan.op_id),),
        auth=(),
        body=body,
    )
    at = At(seq, at_ms, control, derived_key(plan, derived))
    return author_fault(JOBS, None, as_its_author(schedule, put), at)


def may_read(
    control: Control, branches: Iterable[Branch], author: str, kind: str, at_ms: int
) -> bool:
    """Whether a plan's author may read jobs of a kind: a reaction tells when one has ended."""
    scope = scope_of(control, branches, author, at_ms // 1000, asked=(kind,))
    return scope.admits(kind, *READ_BY)
