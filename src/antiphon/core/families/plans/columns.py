"""The columns by which a replica can query plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.family import Column, Evicted
from antiphon.core.manifest import blobs_read

if TYPE_CHECKING:
    from antiphon.core.families.plans.state import Plan

COLUMNS: Final = (
    Column("state", "text", lambda plan: "dropped" if plan.is_dropped else "standing"),
)


def blobs(plan: Plan) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests that every job of the plan reads, while it stands."""
    return (() if plan.is_dropped else blobs_read(plan.body.manifest)), ()
