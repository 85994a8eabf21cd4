"""Whether a derived schedule follows from the plan that it names (spec §7.4).

A plan is a schedule with a name and a trigger, so every policy about a schedule's fields also
holds for a plan. The reducer sees the plan's op as the schedule's first dep. It checks that the
coordinator wrote the schedule, that it is what the plan says and nothing else, and that the plan's
author could submit it here and now. Whether the plan still stands, whether its expression has the
tick, and whether the cause ended so is on other lanes: full nodes check it and report a difference
(`runtime/plans/plan_audit.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import UNSET, Meta
from msgspec.structs import replace

from antiphon.core.families.jobs.derivation import (
    Cause,
    Cron,
    Derivation,
    Reaction,
    Tick,
    Trigger,
    due_ms,
    nonce,
)
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.manifest import (
    MAX_INPUTS,
    ResultInput,
    inputs_of,
    is_asked_again,
    with_nonce,
)
from antiphon.core.record import codec
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import At
    from antiphon.core.record.op import Op

PlanName = Annotated[str, Meta(pattern=r"^[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?\Z")]
"""One token of a subject, and never as long as a job id."""


DERIVED_BYTES: Final = 4 * 1024
"""What a derived schedule may have beyond its plan, or a replica beyond its parent: a nonce, what
it was derived from, and the envelope."""


class PlanBody(ScheduleBody, frozen=True, kw_only=True):
    """What a plan submits, under which name, and when."""

    name: PlanName
    trigger: Trigger


_SHARED: Final = ScheduleBody.__struct_fields__
_OF_ONE_JOB: Final = ("start_by", "not_before", "retry_of", "derived", "replica")
"""What only a single job can have: the times would be the same for every derived one."""


def derived_body(plan: PlanBody, plan_id: str, derived: Derivation) -> ScheduleBody:
    """The schedule that follows from a plan at a tick, or from a cause."""
    fields: dict[str, Any] = {name: getattr(plan, name) for name in _SHARED}
    manifest = with_nonce(plan.manifest, nonce(plan_id, derived), "plan")
    trigger = plan.trigger
    if isinstance(trigger, Reaction) and trigger.result and isinstance(derived, Cause):
        cause = (derived.kind, derived.job)
        read = ResultInput(of=cause, name=trigger.result, output=trigger.output or UNSET)
        manifest = replace(manifest, inputs=(*inputs_of(manifest), read))
    fields["manifest"] = manifest
    return ScheduleBody(**{**fields, "derived": derived})


def contradiction(plan: PlanBody) -> bool:
    """Whether no job can be derived from a plan, or one would cause itself again and again."""
    if any(getattr(plan, name) is not None for name in _OF_ONE_JOB):
        return True
    trigger = plan.trigger
    if not isinstance(trigger, Reaction):
        return leaves_no_room(plan)
    reads = trigger.result is not None
    if trigger.output is not None and not reads:
        return True
    if leaves_no_room(plan, inputs=1 + reads) or (reads and trigger.on != "succeeded"):
        return True
    return trigger.covers(plan.kind)


def leaves_no_room(body: ScheduleBody, *, inputs: int = 1) -> bool:
    """Whether what is derived from this, with so many inputs more, may be too large for a record.

    One of them is a nonce.
    """
    size = len(codec.encode(body))
    given = len(inputs_of(body.manifest)) + inputs
    return given > MAX_INPUTS or size > codec.MAX_OP_BYTES - DERIVED_BYTES


def starts_ms(plan: PlanBody, put_ms: int) -> int:
    """The time after which ticks count, for a plan that was put at this wall time."""
    trigger = plan.trigger
    return max(put_ms, (trigger.from_ms or 0) if isinstance(trigger, Cron) else 0)


def as_its_author(op: JobSchedule, plan: Op) -> JobSchedule:
    """A derived schedule as the plan's author would have written it, by the plan's own chain."""
    body = replace(op.body, derived=None)
    return replace(op, author=plan.author, auth=plan.auth, body=body)


def plan_of(op: JobSchedule, at: At) -> Op | Verdict:
    """The plan of a derived schedule, or the verdict why the schedule does not count."""
    if op.author != at.control.coordinator:
        return Verdict.NOT_COORDINATOR
    plan, derived = plan_behind(op, at), op.body.derived
    if plan is None or derived is None:
        return Verdict.DERIVED
    if due_ms(derived) > min(op.hlc[0], at.commit_ms):
        return Verdict.EARLY
    return Verdict.ARCHIVED if may_be_archived(op, derived, at) else plan


def may_be_archived(op: JobSchedule, derived: Derivation, at: At) -> bool:
    """Whether the job of this tick or cause may have been on the log, and be archived."""
    is_lasting = is_asked_again(op.body.manifest)
    return due_ms(derived) <= at.control.archive.limit_ms(is_asked_again=is_lasting)


def plan_behind(op: JobSchedule, at: At) -> Op | None:
    """The plan that a schedule names and follows from; None if it does not."""
    dep = at.reads.records.get(op.deps[0][0]) if op.deps else None
    plan = dep.op if dep is not None and dep.op_id == op.deps[0][1] else None
    derived = op.body.derived
    if plan is None or derived is None or not isinstance(plan.body, PlanBody):
        return None
    if contradiction(plan.body) or not _sets_off(plan.body, plan.hlc[0], derived):
        return None
    return plan if _is_said(plan.body, op.deps[0][1], op.body) else None


def _is_said(plan: PlanBody, plan_id: str, body: ScheduleBody) -> bool:
    """Whether a schedule is exactly what follows from the plan."""
    return body.derived is not None and body == derived_body(plan, plan_id, body.derived)


def _sets_off(plan: PlanBody, put_ms: int, derived: Derivation) -> bool:
    """Whether the plan's trigger is of this sort, as far as a reader of this lane can tell."""
    match plan.trigger, derived:
        case Cron(), Tick(tick_ms=tick_ms):
            return tick_ms > starts_ms(plan, put_ms)
        case Reaction() as reaction, Cause(kind=kind):
            return reaction.covers(kind)
        case _:
            return False
