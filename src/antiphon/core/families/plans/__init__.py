"""Plans: jobs that the coordinator submits at ticks of a cron expression, or when others end."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.plans import columns, ops, state, table
from antiphon.core.family import Family

PLANS: Final = Family(
    name="plans",
    ops=(ops.PlanPut, ops.PlanDrop),
    branches=(ops.PLAN,),
    lane=state.PlanLane,
    step=table.step,
    enter=table.enter,
    entry=table.entry,
    unfinished=table.unfinished,
    columns=columns.COLUMNS,
    indexes=columns.INDEXES,
    blobs=columns.blobs,
    is_named=True,
)
