"""A plan's state as derived from the log."""

from __future__ import annotations

from msgspec import Struct

from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.family import Lane
from antiphon.core.record.branches import LaneKey


class Plan(Struct, frozen=True, kw_only=True):
    """One plan: what the last accepted put says, and whether it was dropped since."""

    body: PlanBody
    op_id: str
    """The put's id: what derived jobs name, and what their ids follow from."""
    author: str
    auth: tuple[str, ...]
    put_seq: int
    put_ms: int
    """The put's wall time: no tick up to it counts."""
    hlc: tuple[int, int]
    hlc_author: str
    is_dropped: bool = False


class PlanLane(Lane, frozen=True):
    """The last sequence on the plan's subject, and the plan."""

    tails: tuple[int, ...] = (0,)
    state: Plan | None = None


def plan_key(kind: str, name: str) -> LaneKey:
    """The key of a plan's lane."""
    return LaneKey("plans", kind, name)
