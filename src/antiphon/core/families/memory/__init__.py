"""Shared memory: documents that agents write by compare-and-set, and their conflicts (spec §10)."""

from __future__ import annotations

from typing import Final

from antiphon.core.authority import memory_rights
from antiphon.core.families.memory import columns, ops, state, table
from antiphon.core.family import Family

MEMORY: Final = Family(
    name="memory",
    ops=(ops.MemoryPut,),
    branches=(ops.MEMO,),
    rights={"memory": (memory_rights.MEMORY,), "read-memory": (memory_rights.READ,)},
    lane=state.DocumentLane,
    step=table.step,
    enter=table.enter,
    entry=table.entry,
    unfinished=table.unfinished,
    columns=columns.COLUMNS,
    indexes=columns.INDEXES,
    blobs=columns.blobs,
)
