"""Locks: one holder at a time for a key, with a fence that only grows (spec §10).

A lock is not a job's lease: nobody offers it, it has no result, and no op ends it when its time is
over. The next take decides that by its own clock and the log's.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.authority import lock_rights
from antiphon.core.families.locks import columns, ops, state, table
from antiphon.core.family import Family

LOCKS: Final = Family(
    name="locks",
    ops=(ops.LockTake, ops.LockRelease, ops.LockBreak),
    branches=(ops.LOCK,),
    rights={"lock": (lock_rights.TAKE,), "break-lock": (lock_rights.BREAK,)},
    lane=state.LockLane,
    standing=table.standing,
    step=table.step,
    unfinished=table.unfinished,
    enter=table.enter,
    entry=table.entry,
    columns=columns.COLUMNS,
    indexes=columns.INDEXES,
)
