"""The columns by which a replica can query locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.family import Column, Index

if TYPE_CHECKING:
    from antiphon.core.families.locks.state import Lock


def _holder(lock: Lock) -> str | None:
    """The holder's node, unless the lock was released or broken."""
    return None if lock.hold is None else lock.hold.node


def _deadline_ms(lock: Lock) -> int | None:
    """Until when it is held without a renewal; a time that has passed means that it is free."""
    return None if lock.hold is None else lock.hold.deadline_ms


COLUMNS: Final = (
    Column("state", "text", lambda lock: "free" if lock.hold is None else "held"),
    Column("key", "text", lambda lock: lock.key),
    Column("holder", "text", _holder),
    Column("deadline_ms", "integer", _deadline_ms),
)
INDEXES: Final = (Index(("kind", "first_seq"), of="holder"),)
