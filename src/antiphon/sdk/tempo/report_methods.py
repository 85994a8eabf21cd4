"""Bar reports for programs (docs/reports.md).

for kept in await mesh.reports(last=8):
    print(kept.report.window_end, kept.report.kpis["tnt"])
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from antiphon.core.tempo.addresses import Address, parse_address
from antiphon.core.tempo.bars.kpis import KPIS, Tally, combined, kpis
from antiphon.errors import Rejected
from antiphon.runtime.node.replica_reports import KEPT, KeptReport

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from antiphon.runtime.node.replica import Replica
    from antiphon.runtime.tempo.beat_clock import BeatClock

MOST: Final = KEPT


class ReportMethods:
    """What `Mesh` can say about the bars that have ended."""

    if TYPE_CHECKING:

        @property
        def clock(self) -> BeatClock:
            """See `Mesh`."""

        def replica(self) -> AbstractAsyncContextManager[Replica]:
            """See `Mesh`."""

    async def reports(self, address: str | Address = "", *, last: int = 1) -> list[KeptReport]:
        """The newest `last` reports up to a time such as `;beats=~~16`, the oldest of them first.

        With a job, such as `3f9a`: the newest of the bars in which it waited or ran. A node of this
        machine has to have made them: run `antiphon node`.
        """
        wanted = parse_address(address) if isinstance(address, str) else address
        if isinstance(address, str) and wanted.warning:
            warnings.warn(wanted.warning, DeprecationWarning, stacklevel=2)
        if wanted.ahead > 0:
            raise Rejected(
                "a report is about a bar that has ended, and that address is in the future",
                reason="address",
                hint="write ;beats=~~N for N beats ago, ;seconds=~~N for seconds",
            )
        now_ms = self.clock.now_ms()
        until_ms = wanted.at_ms(self.clock.meter(), now_ms)
        async with self.replica() as replica:
            if not wanted.what:
                return replica.reports.newest(limit=last, until_ms=until_ms)
            found = replica.find(wanted.what.strip().lower().removeprefix("blake3:"))
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
    "ReportMethods",
    "Tally",
    "kpis_of",
    "parse_address",
]
