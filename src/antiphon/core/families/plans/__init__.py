"""Plans: jobs that the coordinator submits at ticks of a cron expression, or when others end."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.plans import ops, state, table
from antiphon.core.family import Column, Evicted, Family, Index
from antiphon.core.manifest import blobs_read


def _author(plan: state.Plan) -> str | None:
    """Who put it, while it stands."""
    return None if plan.is_dropped else plan.author


def _root(plan: state.Plan) -> str | None:
    """The first delegation that it was put under, while it stands; without any, its author.

    Whoever passes its permission on cannot make another: only the owner issues first delegations.
    """
    return None if plan.is_dropped else (*plan.auth, plan.author)[0]


_COLUMNS: Final = (
    Column("state", "text", lambda plan: "dropped" if plan.is_dropped else "standing"),
    Column("author", "text", _author),
    Column("root", "text", _root),
    Column("put_seq", "integer", lambda plan: plan.put_seq),
)
_INDEXES: Final = (
    Index(("author", "first_seq", "put_seq"), of="author"),
    Index(("root", "first_seq", "put_seq"), of="root"),
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
