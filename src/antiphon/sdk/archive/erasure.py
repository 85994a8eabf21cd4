"""Erasing what a job was given and what it returned; what proves that it was there stays (§7.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.archive.record_files import Erased
from antiphon.errors import Rejected
from antiphon.runtime.archive.archive_eraser import erase_lane, writing
from antiphon.runtime.archive.archive_store import FolderStore
from antiphon.runtime.caller import submission
from antiphon.sdk.archive.archives import archive_folder, has_archive, open_archive

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.core.families.jobs.state import Job
    from antiphon.sdk.archive.witness import Compared


async def evict_stored(mesh: Compared, job: Job) -> int:
    """Evict everything that a job has in the blob store; how many values that were."""
    for digest in job.stored:
        await submission.evict(mesh.connection.session, job.kind, job.id, digest)
    return len(job.stored)


async def erase_archived(name: str, *, by: str, at_ms: int, home: Path | None = None) -> int:
    """Erase the bytes of a job's records from this process's archive; how many they were.

    None if there is no archive, or the job is not in it yet.
    """
    if not has_archive(home):
        return 0
    lock = await writing(FolderStore(archive_folder(home)))
    try:
        async with open_archive(home=home) as archive:
            try:
                key = await archive.find(name)
            except Rejected as refused:
                if refused.reason != "no_job":
                    raise
                return 0
            return await erase_lane(archive.reader, key, Erased(by=by, at_ms=at_ms))
    finally:
        lock.release()


__all__ = ["erase_archived", "evict_stored"]
