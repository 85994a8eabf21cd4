"""Having a job forgotten; what proves that it was there stays (§7.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.archive.record_files import Erased
from antiphon.core.families.erasures.state import Erasure, is_about
from antiphon.errors import Rejected
from antiphon.runtime.archive.archive_eraser import erase_lane
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.file_store import writing
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.sdk.archive.archives import archive_files, has_archive, open_archive

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from antiphon.core.families.jobs.state import Job
    from antiphon.sdk.archive.witness import Compared


async def forget_job(mesh: Compared, kind: str, job_id: str) -> Erasure:
    """Write the order to forget a job, which every full node follows."""
    return await forget(mesh.connection.session, kind, job_id)


async def leaves_log_ms(mesh: Compared, kind: str, job_id: str) -> int | None:
    """When the next archive may take an ended job's records from the log; None: one has."""
    session = mesh.connection.session
    control = await session.sync_control()
    lane = session.behind((await session.read_lane(kind, job_id)).lane)
    over = lane.over(control)
    if over is None:
        return None
    rules = control.rules
    stays_ms = rules.horizon_ms if over.is_asked_again else rules.retention_ms
    return over.time_ms + stays_ms + 2 * control.drift_most_ms


async def forgotten_jobs(mesh: Compared, jobs: Collection[Job]) -> dict[str, Erasure]:
    """Those of these jobs that were forgotten, by their ids: by whom, and when."""
    async with mesh.replica() as replica:
        return replica.ask(ReplicaErasures).orders(jobs)


async def erase_archived(name: str, note: Erasure, *, home: Path | None = None) -> int:
    """Erase the bytes of a job's records from this process's archive; how many they are.

    None if there is no archive, or the job is not in it yet.
    """
    if not await has_archive(home):
        return 0
    async with writing(archive_files(home)), open_archive(home=home) as archive:
        try:
            key = await archive.find(name)
        except Rejected as refused:
            if refused.reason != "no_job":
                raise
            return 0
        return await erase_lane(archive.reader, key, Erased(by=note.by, at_ms=note.at_ms))


__all__ = ["Erasure", "erase_archived", "forget_job", "forgotten_jobs", "is_about", "leaves_log_ms"]
