"""Locks: one holder at a time for a key, with a fence that only grows (spec §10).

A lock is not a job's lease: nobody offers it, it has no result, and no op ends it when its time is
over. The next take decides that by its own clock and the log's.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.authority import lock_rights
from antiphon.core.authority.parties import whose
from antiphon.core.families.locks import ops, state, table
from antiphon.core.family import Column, Family, Index, by_party


def _holder(lock: state.Lock) -> str | None:
    """The holder's node, unless the lock was released or broken."""
    return None if lock.hold is None else lock.hold.node


def _whose(lock: state.Lock) -> str | None:
    """Under whose authority it is held."""
    return None if lock.hold is None else whose(lock.hold.auth, lock.hold.auth_by)


def _deadline_ms(lock: state.Lock) -> int | None:
    """Until when it is held without a renewal; a time that has passed means that it is free."""
    return None if lock.hold is None else lock.hold.deadline_ms


_COLUMNS: Final = (
    Column("state", "text", lambda lock: "free" if lock.hold is None else "held"),
    Column("key", "text", lambda lock: lock.key),
    Column("holder", "text", _holder),
    Column("deadline_ms", "integer", _deadline_ms),
    Column("whose", "text", _whose, is_told=False),
)
_INDEXES: Final = (Index(("kind", "key"), of="holder"), *by_party("holder"))


LOCKS: Final = Family(
    name="locks",
    ops=(ops.LockTake, ops.LockRelease, ops.LockBreak),
    branches=(ops.LOCK,),
    rights={"lock": (lock_rights.TAKE,), "break-lock": (lock_rights.BREAK,)},
    lane=state.LockLane,
    standing=state.standing,
    step=table.step,
    unfinished=table.unfinished,
    is_asked_again=lambda _op: False,
    enter=table.enter,
    entry=table.entry,
    columns=_COLUMNS,
    indexes=_INDEXES,
)
