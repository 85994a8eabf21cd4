"""Checks a backup with nothing but its files: as every reader would judge what is in it.

Every file has the digest that the signed manifest says. Every record is judged from genesis on, by
a full node that reads the backup instead of a log: signatures, authority, order and seals. The
owner that the records name must have signed the manifest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt
from antiphon.ports import Record
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.caller.holdings import Holdings, holdings_of

if TYPE_CHECKING:
    from antiphon.runtime.backup.backup_files import BackupFiles
    from antiphon.runtime.backup.manifest import Manifest
    from antiphon.runtime.node.full_node import Applied, FullNode

Progress = Callable[[int, int], None]
"""Called with how many records were judged, and how many there are."""


class BackupReport(Struct, frozen=True, kw_only=True):
    """What a backup that is whole contains."""

    mesh: str
    name: str
    owner: str
    made_ms: int
    records: int
    upto: int
    last_ms: int
    """When its newest record was committed. What was acknowledged later is not in it."""
    sealed: int
    """Up to which record its seals reach: the coordinator vouches for these."""
    purged: int
    """Records that had left the log for the archive before they were backed up. Roots of the whole
    log cannot be made again without them; the archive's own check has them."""
    messages: int
    blobs: int
    blob_bytes: int
    archived: int
    """Records in the copy of the archive."""
    held: Holdings
    """Who has which permissions by these records, now, as the owner sees it."""


async def check_backup(
    backup: BackupFiles,
    manifest: Manifest,
    node: FullNode,
    *,
    told: Progress = lambda *_: None,
) -> BackupReport:
    """Check everything; `Corrupt` says which file is wrong. `node` is empty, and is filled."""
    seals = _Seals()
    node.watchers.append(seals.applied)
    await _judge(backup, manifest, node, told)
    session = node.session
    if not manifest.log or session.control.owner != manifest.by:
        raise Corrupt("the manifest is not signed by the owner that the backup's records name")
    purged = manifest.upto - manifest.records
    if not purged:
        seals.check()
    for segment in manifest.messages:
        await backup.segment(segment)
    blobs = await backup.blobs(manifest.blobs)
    for blob in blobs:
        size = 0
        async with aclosing(backup.blob_parts(blob)) as parts:
            async for part in parts:
                size += len(part)
        if size != blob.size:
            raise Corrupt(f"the stored value {blob.digest} has {size} bytes, not {blob.size}")
    await backup.host_files(manifest.host)
    return BackupReport(
        mesh=manifest.mesh,
        name=manifest.name,
        owner=manifest.by,
        made_ms=manifest.made_ms,
        records=manifest.records,
        upto=manifest.upto,
        last_ms=manifest.last_ms,
        sealed=node.seals.upto,
        purged=purged,
        messages=sum(one.count for one in manifest.messages),
        blobs=len(blobs),
        blob_bytes=sum(one.size for one in blobs),
        archived=await _archived(backup, manifest),
        held=holdings_of(session, me=manifest.by),
    )


async def _judge(backup: BackupFiles, manifest: Manifest, node: FullNode, told: Progress) -> None:
    done = last = 0
    async for page in records_of(backup, manifest):
        if page[0].seq <= last:
            raise Corrupt(f"the backup's records are not in the log's order at {page[0].seq}")
        await node.apply(page)
        last, done = page[-1].seq, done + len(page)
        told(done, manifest.records)
    if last != manifest.upto:
        raise Corrupt(f"the backup ends at record {last}, not at {manifest.upto}")


async def records_of(backup: BackupFiles, manifest: Manifest) -> AsyncIterator[list[Record]]:
    """The records of a backup, oldest first."""
    for segment in manifest.log:
        yield [
            Record(one.seq, one.stamp_ns, one.subject, one.payload)
            for one in await backup.segment(segment)
        ]


class _Seals:
    """Whether the newest seal that a coordinator wrote matches the records.

    One that does not match and is followed by one that does is a coordinator's mistake, which all
    readers saw. Without one that follows, the records were changed.
    """

    def __init__(self) -> None:
        self._mismatch = 0

    def applied(self, one: Applied) -> None:
        if isinstance(one.opened.op, MeshSeal):
            if one.verdict is Verdict.SEAL:
                self._mismatch = one.record.seq
            elif one.verdict is Verdict.OK:
                self._mismatch = 0

    def check(self) -> None:
        if self._mismatch:
            raise Corrupt(f"the seal in record {self._mismatch} does not match the records")


async def _archived(backup: BackupFiles, manifest: Manifest) -> int:
    """Check the copy of the archive; it may have grown since the manifest was written."""
    said = manifest.archive
    if said is None:
        return 0
    reader = await ArchiveReader.open(backup.archive)
    report = await check_archive(reader)
    if report.mesh != manifest.mesh:
        raise Corrupt("the copy of the archive is of another mesh")
    if reader.size < said.size or (await reader.root_at(said.size)).hex() != said.root:
        raise Corrupt("the copy of the archive is not the one that was backed up")
    return report.records
