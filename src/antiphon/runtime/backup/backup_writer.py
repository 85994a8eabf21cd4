"""Writes a backup of a running mesh: what is new since the last one, then its manifest.

The log comes first. A stored value is there before the record that names it, so the values that
are listed afterwards include all that these records name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from antiphon.core.record.ids import digest
from antiphon.errors import LogReplaced, Misconfigured, Rejected
from antiphon.ports import Keyring, StoredBlob, StoredMessage, StoredStream
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.backup import manifest as manifests
from antiphon.runtime.backup.backup_files import BackupFiles, ReadList, blob_path, digest_of, packed
from antiphon.runtime.backup.host_files import host_files
from antiphon.runtime.backup.manifest import ArchiveCopy, FileEntry, Manifest, Segment
from antiphon.runtime.file_store import FileStore

SEGMENT_MESSAGES: Final = 4096
SEGMENT_BYTES: Final = 4 * 1024 * 1024
PLACES: Final = 4096
"""Sequences of one file of messages: a register that is written again leaves the others alone."""
PLACE_BYTES: Final = 32 * 1024 * 1024
"""Of such a file: 4,096 of the largest messages would be more than a restore reads."""

T = TypeVar("T")


class BlobSource(Protocol):
    """The engine's stored values."""

    def everything(self) -> AsyncGenerator[StoredBlob]:
        """All of them."""

    def get(self, digest: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """One, checked against its digest."""


class Source(Struct, frozen=True, kw_only=True):
    """What is backed up."""

    mesh: str
    name: str
    engine: str
    log: StoredStream
    messages: StoredStream
    blobs: BlobSource
    home: Path
    """The state directory of the machine that hosts the mesh."""
    archive: FileStore | None = None


class Written(Struct, frozen=True, kw_only=True):
    """What a run did."""

    manifest: Manifest
    is_first: bool
    records: int
    """Those that this run added."""
    blobs: int
    """The same for stored values."""
    total_blobs: int
    bytes: int
    """What it wrote."""


async def write_backup(
    source: Source, backup: BackupFiles, owner: Keyring, *, now_ms: int
) -> Written:
    """Bring a backup up to date, or begin one. The caller is the only one that writes there."""
    former = await backup.manifest()
    if former is not None:
        await _check_same(former, source, backup)
    before = backup.written
    log, last = await _log(source, backup, former)
    messages = await _messages(source, backup, former)
    blobs, added = await _blobs(source, backup, former)
    listed = await _listed(backup, "lists/{digest}.blobs", blobs, backup.blobs, former)
    files = host_files(source.home)
    host = await _listed(backup, "host/{digest}.files", files, backup.host_files, former)
    archive = await _archive(source.archive, backup, former) if source.archive else None
    manifest = Manifest(
        form=manifests.FORM,
        mesh=source.mesh,
        name=source.name,
        engine=source.engine,
        made_ms=now_ms,
        by=owner.did,
        upto=last.upto,
        last_digest=last.digest,
        last_ms=last.commit_ms,
        log=log,
        messages=messages,
        blobs=listed,
        host=host,
        archive=archive,
    )
    kept = [*(one.path for one in manifest.files), *(blob_path(one.digest) for one in blobs)]
    await backup.finish(manifest, owner, kept)
    return Written(
        manifest=manifest,
        is_first=former is None,
        records=manifest.records - (former.records if former is not None else 0),
        blobs=added,
        total_blobs=len(blobs),
        bytes=backup.written - before,
    )


async def _archive(source: FileStore, backup: BackupFiles, former: Manifest | None) -> ArchiveCopy:
    before = former.archive if former is not None else None
    marks = await backup.copy_archive(source, await backup.copied(before.copied) if before else {})
    said = (await ArchiveReader.open(backup.archive)).checkpoint
    listed = await _listed(backup, "lists/{digest}.copied", marks, backup.copied, former)
    return ArchiveCopy(size=said.size, root=said.root.hex(), copied=listed)


class _Last(Struct, frozen=True):
    upto: int = 0
    digest: str = ""
    commit_ms: int = 0


async def _check_same(former: Manifest, source: Source, backup: BackupFiles) -> None:
    """`Misconfigured` or `LogReplaced` if this is not a backup of this log."""
    if former.mesh != source.mesh:
        raise Misconfigured(
            f"{backup} has a backup of the mesh {former.name!r} ({former.mesh})",
            hint="back up to another place",
        )
    found = await source.log.read(former.upto - 1, former.upto)
    if await source.log.last() < former.upto or (
        found and digest(found[0].payload) != former.last_digest
    ):
        raise LogReplaced(
            f"the log does not have record {former.upto} as it is in {backup}:"
            " it was restored from an older copy",
            hint="keep that backup, and make a new one in another place",
        )


async def _log(
    source: Source, backup: BackupFiles, former: Manifest | None
) -> tuple[tuple[Segment, ...], _Last]:
    segments = list(former.log) if former is not None else []
    last = _Last()
    if former is not None:
        last = _Last(former.upto, former.last_digest, former.last_ms)
    upto = await source.log.last()
    held: list[StoredMessage] = []
    size = 0
    async with aclosing(_pages(source.log, last.upto, upto)) as pages:
        async for page in pages:
            for one in page:
                held.append(one)
                size += len(one.payload)
                if len(held) >= SEGMENT_MESSAGES or size >= SEGMENT_BYTES:
                    segments.append(await _put_records(backup, held))
                    last, held, size = _last_of(held), [], 0
    if held:
        segments.append(await _put_records(backup, held))
        last = _last_of(held)
    return tuple(segments), last


def _last_of(held: list[StoredMessage]) -> _Last:
    newest = held[-1]
    return _Last(newest.seq, digest(newest.payload), newest.stamp_ns // 1_000_000)


async def _put_records(backup: BackupFiles, held: list[StoredMessage]) -> Segment:
    return await backup.put_segment(f"log/{held[0].seq:012}-{held[-1].seq:012}.seg", held)


async def _messages(
    source: Source, backup: BackupFiles, former: Manifest | None
) -> tuple[Segment, ...]:
    """All registers, in files by their places: what has not changed is not written again."""
    known = {one.digest: one for one in former.messages} if former is not None else {}
    segments: list[Segment] = []
    upto = await source.messages.last()
    async with aclosing(_places(_pages(source.messages, 0, upto))) as places:
        async for place, held in places:
            path = f"messages/{place:08}-{{digest}}.seg"
            segments.append(await backup.put_segment(path, held, known=known))
    return tuple(segments)


async def _places(
    pages: AsyncGenerator[list[StoredMessage]],
) -> AsyncGenerator[tuple[int, list[StoredMessage]]]:
    """The messages of one file after another; those of a place are in several if they are large."""
    place, size = 0, 0
    held: list[StoredMessage] = []
    async with aclosing(pages):
        async for page in pages:
            for one in page:
                if held and (one.seq // PLACES != place or size >= PLACE_BYTES):
                    yield place, held
                    held, size = [], 0
                place = one.seq // PLACES
                held.append(one)
                size += len(one.payload) + len(one.header)
    if held:
        yield place, held


async def _pages(
    stream: StoredStream, after: int, upto: int
) -> AsyncGenerator[list[StoredMessage]]:
    while after < upto and (page := await stream.read(after, upto)):
        yield page
        after = page[-1].seq


async def _blobs(
    source: Source, backup: BackupFiles, former: Manifest | None
) -> tuple[list[StoredBlob], int]:
    listed = await backup.blobs(former.blobs) if former is not None else []
    known = {one.digest for one in listed}
    found: dict[str, StoredBlob] = {}
    added = 0
    async with aclosing(source.blobs.everything()) as blobs:
        async for blob in blobs:
            if blob.digest not in known and blob.digest not in found:
                try:
                    async with source.blobs.get(blob.digest) as chunks:
                        await backup.put_blob(blob.digest, chunks)
                except Rejected:
                    continue  # evicted meanwhile
                added += 1
            found[blob.digest] = blob
    return [found[name] for name in sorted(found)], added


async def _listed(
    backup: BackupFiles,
    path: str,
    value: T,
    read: ReadList[T],
    former: Manifest | None,
) -> FileEntry:
    name = digest_of(packed(value))
    for entry in former.files if former is not None else ():
        if entry.digest == name:
            return entry
    return await backup.put(path.format(digest=name[7:23]), value, read)
