"""Bar reports for programs (docs/do/reports.md).

for kept in await mesh.tempo.reports(last=8):
    print(kept.report.window_end, kept.report.kpis["tnt"])
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from antiphon.core.tempo.addresses import Address, parse_address
from antiphon.core.tempo.bars.kpis import KPIS, Tally, combined, kpis
from antiphon.errors import Rejected
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_reports import KEPT, KeptReport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.connection.connection import Connection

MOST: Final = KEPT


async def bar_reports(
    connection: Connection, address: str | Address, *, last: int
) -> list[KeptReport]:
    """`Tempo.reports`."""
    wanted = parse_address(address) if isinstance(address, str) else address
    if isinstance(address, str) and wanted.warning:
        warnings.warn(wanted.warning, DeprecationWarning, stacklevel=3)
    if wanted.ahead > 0:
        raise Rejected(
            "a report is about a bar that has ended, and that address is in the future",
            reason="address",
            hint="write ;beats=~~N for N beats ago, ;seconds=~~N for seconds",
        )
    now_ms = connection.clock.now_ms()
    until_ms = wanted.at_ms(connection.clock.meter(), now_ms)
    async with connection.replica() as replica:
        if not wanted.what:
            return replica.reports.newest(limit=last, until_ms=until_ms)
        found = replica.ask(ReplicaJobs).find(wanted.what.strip().lower().removeprefix("blake3:"))
        if len(found) != 1:
            raise Rejected(
                f"{len(found)} jobs have an id that begins with {wanted.what}, or that alias",
                reason="ambiguous" if found else "no_job",
                hint="antiphon jobs lists the newest; without a job, a report is about all",
            )
        job = found[0]
        end_ms = min(job.ended_ms or now_ms, until_ms)
        bars = replica.reports.between(job.scheduled_ms, end_ms, limit=MOST)
        return bars[-last:]


def kpis_of(reports: Sequence[KeptReport]) -> dict[str, float | None]:
    """The key figures of several bars together."""
    return kpis(combined(kept.tally for kept in reports))


__all__ = [
    "KPIS",
    "Address",
    "KeptReport",
    "Tally",
    "bar_reports",
    "kpis_of",
    "parse_address",
]
