"""What the jobs of a mesh cost, from the local replica (docs/do/cost.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.cost.job_cost import Spent
from antiphon.core.cost.words import amount_text, beats_text, spent_words
from antiphon.core.derivations.cost_sums import CostBy, CostLine, CostSums
from antiphon.runtime.replica.job_pages import EVERYTHING, is_below, is_visible
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from antiphon.runtime.replica.replica import Replica

JOBS_AT_ONCE: Final = 200
"""Read in one turn of the loop: others wait meanwhile."""


class CostReport(Struct, frozen=True, kw_only=True):
    """What the jobs that ended cost, as far as this machine may read them."""

    by: CostBy
    lines: tuple[CostLine, ...]
    """The most expensive first."""
    total: CostLine


async def cost_report(
    replica: AbstractAsyncContextManager[Replica],
    *,
    by: CostBy = "kind",
    since_ms: int = 0,
    kind: str = "",
    visible: Sequence[str] = EVERYTHING,
) -> CostReport:
    """Sums over the jobs that ended since then; of this kind and kinds below it, if one is given.

    What the workers said is added up: nobody else measured it.
    """
    sums = CostSums(by)
    before: int | None = None
    async with replica as opened:
        while jobs := opened.ask(ReplicaJobs).ended(before=before, limit=JOBS_AT_ONCE):
            for job in jobs:
                is_wanted = job.ended_ms >= since_ms and is_below(job.kind, kind)
                if is_wanted and is_visible(job.kind, visible):
                    sums.add(job)
            before = jobs[-1].ended_seq
            if jobs[-1].ended_ms < since_ms:
                break
            await asyncio.sleep(0)
    return CostReport(by=by, lines=tuple(sums.lines), total=sums.total)


__all__ = [
    "CostBy",
    "CostLine",
    "CostReport",
    "Spent",
    "amount_text",
    "beats_text",
    "cost_report",
    "spent_words",
]
