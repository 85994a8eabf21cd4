"""Finds the snapshot that the newest seal names, and checks that it is that one (spec §7.5)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from antiphon.core.archive import snapshot as snapshots
from antiphon.core.archive.snapshot import Snapshot
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.families.seals.state import lane_before
from antiphon.core.record import subjects
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, Malformed, Rejected
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.core.families.seals.ops import SealBody
    from antiphon.ports import Blobs, Record
    from antiphon.runtime.log.session import Session

_log = LazyLogger(__name__)

READ_AT_ONCE: Final = 256 * 1024
"""Bytes that are read in the event loop, in less than 100 ms; a thread reads more."""
SNAPSHOT: Final = ("mesh.seal", "snapshot")
"""What a member names in place of a job, to read a snapshot. It tells nobody anything but how many
records there are: every member may."""


async def newest_snapshot(session: Session, blobs: Blobs) -> Snapshot | None:
    """The snapshot to begin with; None if no seal names one, or nobody has it any more.

    `Corrupt` if what is stored is not what the coordinator made.
    """
    await session.sync_control()
    seal = await newest_seal(session)
    if seal is None or seal.state is None:
        return None
    try:
        found = await stored_snapshot(blobs, seal.state)
    except Malformed as problem:
        raise Corrupt(f"the snapshot {seal.state} cannot be read: {problem.message}") from problem
    except Rejected as problem:
        _log.warning("snapshot_missing", snapshot=seal.state, problem=problem.message)
        return None
    archives = {one.archive.seq for one in session.control.archives}
    if found.head.mesh != session.mesh or not found.head.at <= seal.upto:
        raise Corrupt(f"the snapshot {seal.state} is not about this log")
    if found.head.at not in archives:
        raise Corrupt(f"the snapshot {seal.state} is not at the place of an archive")
    return found


async def stored_snapshot(blobs: Blobs, name: str) -> Snapshot:
    """The snapshot that is stored under a digest; its maker reads it back with this, too.

    `Malformed` if it is none, `Corrupt` if it is another one, `Rejected` if nobody has it.
    """
    data = bytearray()
    async with blobs.get(name, job=SNAPSHOT) as chunks:
        async for chunk in chunks:
            data += chunk
            snapshots.check_size(len(data))
    raw = bytes(data)
    if digest(raw) != name:
        raise Corrupt(f"what is stored as the snapshot {name} is something else")
    if len(raw) <= READ_AT_ONCE:
        return snapshots.read(raw)
    return await asyncio.to_thread(snapshots.read, raw)


async def newest_seal(session: Session) -> SealBody | None:
    """The seal that covers most, of those that their office and signature allow.

    Whoever is new knows no root, and not what came before a seal, so an old one that somebody wrote
    again looks right. But all that came since are then behind what it covers.
    """
    log, subject = session.log, subjects.seal(session.mesh)
    most: SealBody | None = None
    for record in await log.newest([subject]):
        most = await _seal_at(session, record)
    async for page in log.read_lane([subject], after=most.upto if most is not None else 0):
        for record in page:
            found = await _seal_at(session, record)
            if found is not None and (most is None or found.upto > most.upto):
                most = found
    return most


async def _seal_at(session: Session, record: Record) -> SealBody | None:
    """What a seal says, if this record is one."""
    opened = session.open(record)
    seal = opened.op
    if not isinstance(seal, MeshSeal):
        return None
    await session.confirm(record.seq)
    outcome = await session.judge(opened, lane_before(seal))
    return seal.body if outcome.verdict in (Verdict.OK, Verdict.UNSEEN) else None
