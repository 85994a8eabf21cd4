"""What the jobs of a mesh cost, from the local replica (docs/do/cost.md)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.cost.job_cost import Spent
from antiphon.core.cost.words import amount_text, beats_text, spent_words
from antiphon.core.derivations.cost_sums import CostBy, CostLine, cost_sums
from antiphon.runtime.replica.job_pages import EVERYTHING, is_below, is_visible
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.replica.replica import Replica

JOBS_AT_ONCE: Final = 1_000


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
    async with replica as opened:
        jobs = await _ended(
            opened, since_ms, lambda one: is_below(one, kind) and is_visible(one, visible)
        )
    lines, total = cost_sums(jobs, by)
    return CostReport(by=by, lines=tuple(lines), total=total)


async def _ended(replica: Replica, since_ms: int, counts: Callable[[str], bool]) -> list[Job]:
    found: list[Job] = []
    before: int | None = None
    while jobs := replica.ask(ReplicaJobs).ended(before=before, limit=JOBS_AT_ONCE):
        found += [job for job in jobs if job.ended_ms >= since_ms and counts(job.kind)]
        before = jobs[-1].ended_seq
        if jobs[-1].ended_ms < since_ms:
            break
        await asyncio.sleep(0)
    return found


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
