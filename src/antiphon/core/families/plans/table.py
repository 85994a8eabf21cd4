"""What an op does to a plan (spec §7.4): the last accepted put stands until a drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from antiphon.core.families.jobs.planned import contradiction, starts_ms
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import Plan
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import At
    from antiphon.core.record.op import Op

LATEST_BEGIN_MS: Final = 10 * 366 * 24 * 3_600_000
"""How long after its put a plan may begin: calendars end."""


def step(plan: Plan | None, op: Op, at: At) -> Plan | Verdict:
    """The plan after an op, or the verdict if nothing changes."""
    if isinstance(op, PlanPut):
        return _put(plan, op, at)
    if plan is None:
        return Verdict.NO_JOB
    if plan.is_dropped:
        return Verdict.ALREADY
    return replace(plan, is_dropped=True, hlc=op.hlc, hlc_author=op.author)


def _put(plan: Plan | None, op: PlanPut, at: At) -> Plan | Verdict:
    if contradiction(op.body):
        return Verdict.PLAN
    if starts_ms(op.body, op.hlc[0]) - op.hlc[0] > LATEST_BEGIN_MS:
        return Verdict.DELAY
    # The same by the same right is no change: derived jobs keep naming the first op.
    same = plan is not None and (plan.body, plan.author, plan.auth) == (op.body, op.author, op.auth)
    if plan is not None and same and not plan.is_dropped:
        return Verdict.ALREADY
    return _standing(op, at.seq, digest(codec.encode(op)))


def _standing(op: PlanPut, seq: int, op_id: str) -> Plan:
    return Plan(
        body=op.body,
        op_id=op_id,
        author=op.author,
        auth=op.auth,
        put_seq=seq,
        put_ms=op.hlc[0],
        hlc=op.hlc,
        hlc_author=op.author,
    )


def enter(op: Op, seq: int, op_id: str) -> Plan | None:
    """The plan after an accepted put, from the put alone; a drop does not say what it dropped."""
    return _standing(op, seq, op_id) if isinstance(op, PlanPut) else None


def entry(plan: Plan) -> int:
    """The sequence of the put that stands, or that a later drop ended."""
    return plan.put_seq


def unfinished(plan: Plan) -> str:
    """Why a plan cannot be exported as a bundle yet; empty if it can."""
    return "" if plan.is_dropped else "the plan still stands"
