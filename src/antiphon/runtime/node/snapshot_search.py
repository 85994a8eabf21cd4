"""Finds the snapshot that the newest seal names, and checks that it is that one (spec §7.5)."""

from __future__ import annotations

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
    from antiphon.ports import Blobs
    from antiphon.runtime.log.session import Session

SEALS_LOOKED_AT: Final = 64
"""Of which the newest that counts is taken."""

_log = LazyLogger(__name__)


async def newest_snapshot(session: Session, blobs: Blobs) -> Snapshot | None:
    """The snapshot to begin with; None if no seal names one, or nobody has it any more.

    `Corrupt` if what is stored is not what the coordinator made.
    """
    await session.sync_control()
    seal = await _newest_seal(session)
    if seal is None or seal.state is None:
        return None
    data = bytearray()
    try:
        async with blobs.get(seal.state) as chunks:
            async for chunk in chunks:
                data += chunk
                if len(data) > snapshots.MAX_BYTES:
                    raise Corrupt(f"the snapshot {seal.state} is larger than any may be")
    except Rejected as problem:
        _log.warning("snapshot_missing", snapshot=seal.state, problem=problem.message)
        return None
    return checked(session, seal, bytes(data))


def checked(session: Session, seal: SealBody, data: bytes) -> Snapshot:
    """The snapshot in these bytes, if a seal names it and it is about this log; or `Corrupt`."""
    if digest(data) != seal.state:
        raise Corrupt(
            f"the stored snapshot is not the one that the newest seal names: {seal.state}"
        )
    try:
        found = snapshots.read(data)
    except Malformed as problem:
        raise Corrupt(f"the snapshot {seal.state} cannot be read: {problem.message}") from problem
    archives = {one.archive.seq for one in session.control.archives}
    if found.head.mesh != session.mesh or not found.head.at <= seal.upto:
        raise Corrupt(f"the snapshot {seal.state} is not about this log")
    if found.head.at not in archives:
        raise Corrupt(f"the snapshot {seal.state} is not at the place of an archive")
    return found


async def _newest_seal(session: Session) -> SealBody | None:
    """The newest seal that its office and its signature allow; whoever is new knows no root."""
    log, subject = session.log, subjects.seal(session.mesh)
    found = await log.newest([subject])
    record = found[0] if found else None
    for _ in range(SEALS_LOOKED_AT):
        if record is None:
            return None
        opened = session.open(record)
        seal = opened.op
        if not isinstance(seal, MeshSeal):
            return None
        await session.confirm(record.seq)
        outcome = await session.judge(opened, lane_before(seal))
        if outcome.verdict in (Verdict.OK, Verdict.UNSEEN):
            return seal.body
        record = await log.fetch(seal.prev) if seal.prev else None
    return None
