"""Plans: jobs that the coordinator submits at ticks of a cron expression, or when others end."""

from __future__ import annotations

from typing import Final

from antiphon.core.authority.parties import whose
from antiphon.core.families.plans import ops, state, table
from antiphon.core.family import Column, Evicted, Family, Index
from antiphon.core.manifest import blobs_read


def _author(plan: state.Plan) -> str | None:
    """Who put it, while it stands."""
    return None if plan.is_dropped else plan.author


def _whose(plan: state.Plan) -> str | None:
    """For whom it was put, while it stands."""
    return None if plan.is_dropped else whose(plan.auth, plan.author)


_COLUMNS: Final = (
    Column("state", "text", lambda plan: "dropped" if plan.is_dropped else "standing"),
    Column("author", "text", _author),
    Column("whose", "text", _whose, is_told=False),
    Column("put_seq", "integer", lambda plan: plan.put_seq),
)
_INDEXES: Final = (
    Index(("author", "first_seq", "put_seq"), of="author"),
    Index(("whose", "first_seq", "put_seq"), of="whose"),
    Index(("kind", "name"), of="whose"),
)


def _blobs(plan: state.Plan) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests that every job of the plan reads, while it stands."""
    return (() if plan.is_dropped else blobs_read(plan.body.manifest)), ()


PLANS: Final = Family(
    name="plans",
    ops=(ops.PlanPut, ops.PlanDrop),
    branches=(ops.PLAN,),
    lane=state.PlanLane,
    step=table.step,
    enter=table.enter,
    entry=table.entry,
    unfinished=table.unfinished,
    columns=_COLUMNS,
    indexes=_INDEXES,
    blobs=_blobs,
    is_named=True,
)
