"""How a job ended that is in the archive and no longer on the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.errors import AntiphonError, Rejected
from antiphon.runtime.caller.submission import Ended, end_by
from antiphon.sdk.archive.archives import has_archive, open_archive

if TYPE_CHECKING:
    from pathlib import Path


async def archived_end(home: Path, kind: str, job_id: str) -> Ended | None:
    """The job's end, proved by the archive of a state directory; None if it is not there.

    `Rejected` if it was erased.
    """
    if not await has_archive(home):
        return None
    async with open_archive(home=home) as archive:
        try:
            key = await archive.find(job_id)
            if kind and key.kind != kind:
                return None
            report = await archive.report(key)
        except AntiphonError as problem:
            if isinstance(problem, Rejected) and problem.reason == "erased":
                raise
            return None
    if not report.is_job:
        return None
    ending = next((one.op for one, _ in report.lane if one.seq == report.job.ended_seq), None)
    return end_by(report.job, ending)
