"""Seals: the coordinator's signed root over everything on the log so far (spec §7.5)."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.seals import ops, state, table
from antiphon.core.family import Family

SEALS: Final = Family(
    name="seals",
    ops=(ops.MeshSeal,),
    branches=(ops.SEAL,),
    lane=state.SealLane,
    entitled=table.entitled,
    step=table.step,
    lane_before=state.lane_before,
)
