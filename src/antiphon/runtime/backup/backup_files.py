"""The files of a backup.

    manifest                what is in it, signed
    antiphon-backup         says that this is one
    log/FIRST-LAST.seg      records of the log
    messages/PLACE-….seg    registers of messages
    blobs/ab/abcd…          stored values, by digest
    lists/….blobs           which values there are
    lists/….copied          which files of the archive were copied, as they were
    host/….files            the gate's members and tickets, revocations, addresses
    archive/                a copy of the archive, if there is one

Files appear whole or not at all and never change, and each is read back as a restore reads it. The
manifest comes last: until it is replaced, the former backup is there untouched; afterwards what it
no longer names is removed.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from blake3 import blake3

from antiphon.core.archive.checkpoint import CHECKPOINT, SEAL, VKEY
from antiphon.decoding import UNREADABLE
from antiphon.errors import Corrupt, Misconfigured, Unreadable
from antiphon.ports import Keyring, StoredBlob, StoredMessage
from antiphon.read_back import read_back_stored
from antiphon.runtime.backup import manifest as manifests
from antiphon.runtime.backup.host_files import HOST, checked_files
from antiphon.runtime.backup.manifest import MANIFEST, FileEntry, Manifest, Segment
from antiphon.runtime.file_store import FileStore

MAX_SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Of a segment when it is unpacked."""
MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
ARCHIVE: Final = "archive"
MARKER: Final = "antiphon-backup"
"""What lies beside other things without this file, and without a manifest, is something else."""
OWN: Final = ("log", "messages", "blobs", "lists", "host")
"""The folders whose content the manifest names, file by file."""
_LEVEL: Final = 6
_HEX: Final = frozenset("0123456789abcdef")

T = TypeVar("T")
ReadList = Callable[[FileEntry], Awaitable[T]]
"""Reads what a file of a backup lists."""
Marks = dict[str, str]
"""Of an archive's files, by their paths: what they were when they were copied."""

_messages = msgspec.msgpack.Decoder(list[StoredMessage])
_blobs = msgspec.msgpack.Decoder(list[StoredBlob])
_files = msgspec.msgpack.Decoder(dict[str, bytes])
_marks = msgspec.msgpack.Decoder(Marks)


def packed(value: object) -> bytes:
    """A list as a backup stores it."""
    return msgspec.msgpack.encode(value, order="sorted")


def digest_of(data: bytes) -> str:
    """As manifests have it."""
    return f"blake3:{blake3(data).hexdigest()}"


class BackupFiles:
    """One backup, in a folder or a bucket."""

    def __init__(self, store: FileStore) -> None:
        """Nothing need be there yet."""
        self.store = store
        self.written = 0
        """Bytes that this object wrote."""

    def __str__(self) -> str:
        return str(self.store)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Be the only one that writes here; `Held` if another one is.

        `Misconfigured` if other things lie here: what a backup does not name is removed from it.
        """
        async with self.store.locked():
            if not (await self.store.has(MARKER) or await self.store.has(MANIFEST)):
                if not await self._is_empty():
                    raise Misconfigured(
                        f"{self} is not empty, and there is no backup in it",
                        hint="name a new place, which is for this backup alone",
                    )
                await self.store.write(MARKER, b"")
            yield

    async def _is_empty(self) -> bool:
        async with aclosing(self.store.files()) as files:
            async for _ in files:
                return False
        return True

    # --- manifest -----------------------------------------------------------------------------

    async def manifest(self) -> Manifest | None:
        """The manifest, its signature checked; None if nothing was backed up here yet."""
        data = await self._manifest_bytes()
        return manifests.read(data) if data is not None else None

    async def _manifest_bytes(self) -> bytes | None:
        return await self.store.read(MANIFEST, most=MAX_MANIFEST_BYTES)

    async def require_manifest(self) -> Manifest:
        """The same; `Misconfigured` if there is none."""
        found = await self.manifest()
        if found is None:
            raise Misconfigured(
                f"there is no backup in {self}", hint="antiphon backup PLACE makes one"
            )
        return found

    async def finish(self, manifest: Manifest, owner: Keyring, kept: Iterable[str]) -> None:
        """Put a manifest in place, then remove what is in none of the `kept` files."""
        former = await self._manifest_bytes()
        await self._write(MANIFEST, manifests.write(manifest, owner))
        try:
            await read_back_stored(f"the manifest of {self}", manifest, self.manifest)
        except Unreadable:
            if former is None:
                await self.store.remove(MANIFEST)
            else:
                await self._write(MANIFEST, former)
            raise
        wanted = set(kept)
        for folder in OWN:
            async with aclosing(self.store.files(folder)) as files:
                async for path, _ in files:
                    if path not in wanted:
                        await self.store.remove(path)

    # --- files --------------------------------------------------------------------------------

    async def _write(self, path: str, data: bytes) -> None:
        await self.store.write(path, data)
        self.written += len(data)

    async def put(self, path: str, listed: T, read: ReadList[T]) -> FileEntry:
        """Write a file whose name says what is in it; `read` is how a restore reads it."""
        data = packed(listed)
        entry = FileEntry(path=path, size=len(data), digest=digest_of(data))
        await self._write(path, data)
        await read_back_stored(f"{path} of the backup", listed, read, entry)
        return entry

    async def put_segment(
        self,
        path: str,
        messages: list[StoredMessage],
        *,
        known: Mapping[str, Segment] = MappingProxyType({}),
    ) -> Segment:
        """Write messages, unless a file that is `known` by its digest has them.

        `{digest}` in the path stands for the first digits of it.
        """
        data = zlib.compress(msgspec.msgpack.encode(messages), _LEVEL)
        digest = digest_of(data)
        if digest in known:
            return known[digest]
        entry = Segment(
            path=path.format(digest=digest[7:23]),
            size=len(data),
            digest=digest,
            first=messages[0].seq,
            last=messages[-1].seq,
            count=len(messages),
        )
        await self._write(entry.path, data)
        await read_back_stored(f"{entry.path} of the backup", messages, self.segment, entry)
        return entry

    async def segment(self, entry: Segment) -> list[StoredMessage]:
        """The messages of a segment; `Corrupt` if they are not what the manifest says."""
        data = await self.checked(entry)
        try:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(data, MAX_SEGMENT_BYTES)
            found = _messages.decode(plain)
        except (*UNREADABLE, zlib.error) as problem:
            raise Corrupt(f"{entry.path} cannot be read: {problem}") from problem
        seqs = [one.seq for one in found]
        is_rising = all(one < other for one, other in pairwise(seqs))
        ends = (seqs[0], seqs[-1], len(seqs)) if seqs else None
        if not is_rising or ends != (entry.first, entry.last, entry.count):
            raise Corrupt(f"{entry.path} does not have the messages that the manifest says")
        return found

    async def blobs(self, entry: FileEntry) -> list[StoredBlob]:
        """Which stored values a backup has."""
        return _decoded(_blobs, await self.checked(entry), entry)

    async def host_files(self, entry: FileEntry) -> dict[str, bytes]:
        """The files of the host, by their paths in its state directory."""
        return checked_files(_decoded(_files, await self.checked(entry), entry), patterns=HOST)

    async def checked(self, entry: FileEntry) -> bytes:
        """The bytes of a file that the manifest names."""
        folder, _, name = entry.path.partition("/")
        if folder not in OWN or not name or ".." in name.split("/"):
            raise Corrupt(f"{entry.path!r} is not a file of a backup")
        try:
            data = await self.store.read(entry.path, most=entry.size)
        except Corrupt:
            data = b""
        if data is None:
            raise Corrupt(f"the backup lacks {entry.path}")
        if len(data) != entry.size or digest_of(data) != entry.digest:
            raise Corrupt(
                f"{entry.path} is damaged: it is not what was backed up",
                hint="take it from another copy of the backup",
            )
        return data

    # --- blobs --------------------------------------------------------------------------------

    async def put_blob(self, digest: str, chunks: AsyncIterator[bytes]) -> None:
        """Write a stored value. Its chunks were checked by whoever reads them."""
        async with aclosing(self._counted(chunks)) as counted:
            await self.store.write_parts(blob_path(digest), counted)

    async def _counted(self, parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for part in parts:
            self.written += len(part)
            yield part

    async def blob_parts(self, blob: StoredBlob) -> AsyncGenerator[bytes]:
        """A stored value in parts; `Corrupt` at its end if it is not what its name says."""
        hasher = blake3()
        async with aclosing(self.store.parts(blob_path(blob.digest))) as parts:
            async for part in parts:
                hasher.update(part)
                yield part
        if f"blake3:{hasher.hexdigest()}" != blob.digest:
            raise Corrupt(
                f"the stored value {blob.digest} is damaged",
                hint="take it from another copy of the backup",
            )

    # --- the archive --------------------------------------------------------------------------

    @property
    def archive(self) -> FileStore:
        """Where the copy of the archive is."""
        return self.store.below(ARCHIVE)

    async def copied(self, entry: FileEntry) -> Marks:
        """What the archive's files were when they were copied."""
        return _decoded(_marks, await self.checked(entry), entry)

    async def copy_archive(self, source: FileStore, copied: Marks) -> Marks:
        """Copy what is new in an archive, its signed files last; what there was.

        Nobody may write the archive meanwhile. Interrupted, the copy is whole as far as its own
        signed files say: what these need is removed after they were replaced.
        """
        marks = await _marks_of(source)
        here = await _marks_of(self.archive)
        last = [name for name in (SEAL, VKEY, CHECKPOINT) if name in marks]
        for name in sorted(marks.keys() - set(last)):
            # Only erasing changes a file that was there.
            if name not in here or copied.get(name) != marks[name]:
                await self._copy(source, name)
        for name in last:
            await self._copy(source, name)
        for name in here.keys() - marks.keys():
            await self.archive.remove(name)  # a partial file that a whole one has replaced
        return marks

    async def _copy(self, source: FileStore, name: str) -> None:
        async with (
            aclosing(source.parts(name)) as parts,
            aclosing(self._counted(parts)) as counted,
        ):
            await self.archive.write_parts(name, counted)


async def _marks_of(store: FileStore) -> Marks:
    async with aclosing(store.files()) as files:
        return {path: mark async for path, mark in files}


def blob_path(digest: str) -> str:
    """Where a stored value is."""
    name = digest.removeprefix("blake3:")
    if len(name) != 64 or not set(name) <= _HEX:  # noqa: PLR2004 - hexadecimal digits
        raise Corrupt(f"{digest!r} is not a digest")
    return f"blobs/{name[:2]}/{name}"


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, entry: FileEntry) -> T:
    try:
        return decoder.decode(data)
    except UNREADABLE as problem:
        raise Corrupt(f"{entry.path} cannot be read: {problem}") from problem
