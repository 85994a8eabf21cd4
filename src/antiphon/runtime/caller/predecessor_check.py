"""Whether what a job waits for is still on the log, before the job is submitted (spec §7.5).

The coordinator cancels a job that names a predecessor which it does not know. Where jobs leave the
log, who submits is told at once, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.jobs.state import job_key
from antiphon.core.manifest import job_id
from antiphon.errors import EngineDenied, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.families.jobs.ops import ScheduleBody
    from antiphon.runtime.log.session import Session


async def check_predecessors(session: Session, bodies: Sequence[ScheduleBody]) -> None:
    """`Rejected` if one of these waits for a job that the log no longer has.

    Nothing is read where nothing was ever archived, and for jobs that wait for each other.
    """
    if not session.is_archived_since(0):
        return
    own = {job_key(one.kind, job_id(one.manifest)): one for one in bodies if one.predecessors}
    beside = {job_key(one.kind, job_id(one.manifest)) for one in bodies}
    named = {job_key(*key) for one in own.values() for key in one.predecessors} - beside
    if not named:
        return
    try:
        found = await session.read_lanes(dict.fromkeys((*named, *own), 0))
    except EngineDenied:
        return  # the coordinator says what it thinks of that
    for key, body in own.items():
        if found[key].lane.state is not None:
            continue  # it was submitted before
        for kind, name in body.predecessors:
            before = job_key(kind, name)
            if before in named and found[before].lane.state is None:
                raise Rejected(
                    f"this job waits for {kind} {name[:8]}, which is not on the log: it was"
                    " archived, or never submitted",
                    reason="predecessor",
                    hint=f"'antiphon archive find {name[:8]}' shows how it ended; submit it"
                    " again, or leave it out",
                )
