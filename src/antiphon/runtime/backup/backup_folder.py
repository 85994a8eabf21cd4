"""The files of a backup.

    manifest                what is in it, signed
    antiphon-backup.lock    locked by whoever writes
    log/FIRST-LAST.seg      records of the log
    messages/PLACE-….seg    registers of messages
    blobs/ab/abcd…          stored values, by digest
    lists/….blobs           which values there are
    host/….files            the gate's members and tickets, revocations, addresses
    archive/                a copy of the archive, if there is one

Files appear whole or not at all and never change. The manifest comes last: until it is replaced,
the former backup is there untouched; afterwards what it no longer names is removed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec
from blake3 import blake3

from antiphon.errors import Corrupt, Misconfigured
from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE, replace_file
from antiphon.ports import StoredBlob, StoredMessage
from antiphon.runtime.backup import manifest as manifests
from antiphon.runtime.backup.manifest import MANIFEST, FileEntry, Manifest, Segment
from antiphon.runtime.identity.key_files import FileLock, lock_file

MAX_SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Of a segment when it is unpacked: far more than any that was written."""
PART_BYTES: Final = 1024 * 1024
ARCHIVE: Final = "archive"
MARKER: Final = "antiphon-backup.lock"
"""Locked by whoever writes. A directory without it, and without a manifest, is something else."""
OWN: Final = ("log", "messages", "blobs", "lists", "host")
"""The folders whose content the manifest names, file by file."""
_LEVEL: Final = 6
_HEX: Final = frozenset("0123456789abcdef")

T = TypeVar("T")

_messages = msgspec.msgpack.Decoder(list[StoredMessage])
_blobs = msgspec.msgpack.Decoder(list[StoredBlob])
_files = msgspec.msgpack.Decoder(dict[str, bytes])


def digest_of(data: bytes) -> str:
    """As manifests have it."""
    return f"blake3:{blake3(data).hexdigest()}"


class BackupFolder:
    """One backup on disk."""

    def __init__(self, path: Path) -> None:
        """The folder need not exist yet."""
        self.path = path
        self.written = 0
        """Bytes that this object wrote."""

    def lock(self) -> FileLock:
        """Be the only process that writes here; `Held` if another one is.

        `Misconfigured` if other things lie here: what a backup does not name is removed from it.
        """
        try:
            found = {path.name for path in self.path.iterdir()} if self.path.is_dir() else set()
            if found and not found & {MARKER, MANIFEST}:
                raise Misconfigured(
                    f"{self.path} is not empty, and there is no backup in it",
                    hint="name a new directory, which is for this backup alone",
                )
            self.path.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
            (self.path / MARKER).touch(PRIVATE_MODE)
        except OSError as problem:
            raise Misconfigured(
                f"{self.path} cannot be used for a backup: {problem.strerror}",
                hint="name a directory that you may write to",
            ) from problem
        return lock_file(self.path / MARKER, f"another process writes the backup {self.path}")

    # --- manifest -----------------------------------------------------------------------------

    def manifest(self) -> Manifest | None:
        """The manifest, its signature checked; None if nothing was backed up here yet."""
        try:
            data = (self.path / MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        return manifests.read(data)

    def require_manifest(self) -> Manifest:
        """The same; `Misconfigured` if there is none."""
        found = self.manifest()
        if found is None:
            raise Misconfigured(
                f"there is no backup in {self.path}", hint="antiphon backup DIR makes one"
            )
        return found

    def finish(self, data: bytes, kept: Iterable[str]) -> None:
        """Put a manifest in place, then remove what is in none of the `kept` files."""
        self._write(MANIFEST, data)
        wanted = set(kept)
        for folder in OWN:
            for path in sorted((self.path / folder).rglob("*"), reverse=True):
                if path.is_file() and path.relative_to(self.path).as_posix() not in wanted:
                    path.unlink()

    # --- files --------------------------------------------------------------------------------

    def _write(self, path: str, data: bytes) -> None:
        target = self.path / path
        replace_file(target, data)
        _sync(target.parent)
        self.written += len(data)

    async def put(self, path: str, data: bytes) -> FileEntry:
        """Write a file whose name says what is in it."""
        await asyncio.to_thread(self._write, path, data)
        return FileEntry(path=path, size=len(data), digest=digest_of(data))

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
        await asyncio.to_thread(self._write, entry.path, data)
        return entry

    def segment(self, entry: Segment) -> list[StoredMessage]:
        """The messages of a segment; `Corrupt` if they are not what the manifest says."""
        data = self.checked(entry)
        try:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(data, MAX_SEGMENT_BYTES)
            found = _messages.decode(plain)
        except (zlib.error, msgspec.MsgspecError) as problem:
            raise Corrupt(f"{entry.path} cannot be read: {problem}") from problem
        seqs = [one.seq for one in found]
        is_rising = all(one < other for one, other in pairwise(seqs))
        ends = (seqs[0], seqs[-1], len(seqs)) if seqs else None
        if not is_rising or ends != (entry.first, entry.last, entry.count):
            raise Corrupt(f"{entry.path} does not have the messages that the manifest says")
        return found

    def blobs(self, manifest: Manifest) -> list[StoredBlob]:
        """Which stored values a backup has."""
        return _decoded(_blobs, self.checked(manifest.blobs), manifest.blobs)

    def host_files(self, manifest: Manifest) -> dict[str, bytes]:
        """The files of the host, by their paths in its state directory."""
        return _decoded(_files, self.checked(manifest.host), manifest.host)

    def checked(self, entry: FileEntry) -> bytes:
        """The bytes of a file that the manifest names."""
        path = self._inside(entry.path)
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size == entry.size else b""
        except OSError as problem:
            raise Corrupt(f"the backup lacks {entry.path}: {problem.strerror}") from problem
        if size != entry.size or digest_of(data) != entry.digest:
            raise Corrupt(
                f"{entry.path} is damaged: it is not what was backed up",
                hint="take it from another copy of the backup",
            )
        return data

    def _inside(self, path: str) -> Path:
        parts = Path(path).parts
        if not parts or parts[0] not in OWN or ".." in parts:
            raise Corrupt(f"{path!r} is not a file of a backup")
        return self.path / path

    # --- blobs --------------------------------------------------------------------------------

    async def put_blob(self, digest: str, chunks: AsyncIterator[bytes]) -> None:
        """Write a stored value. Its chunks were checked by whoever reads them."""
        target = self.path / blob_path(digest)
        fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.new")
        target.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
        try:
            with os.fdopen(handle, "wb") as out:
                async for chunk in chunks:
                    await asyncio.to_thread(out.write, chunk)
                    self.written += len(chunk)
                out.flush()
                await asyncio.to_thread(os.fsync, out.fileno())
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
        _sync(target.parent)

    async def blob_parts(self, blob: StoredBlob) -> AsyncGenerator[bytes]:
        """A stored value in parts; `Corrupt` at its end if it is not what its name says."""
        path, hasher = self.path / blob_path(blob.digest), blake3()
        try:
            file = await asyncio.to_thread(path.open, "rb")
        except OSError as problem:
            raise Corrupt(f"the backup lacks the stored value {blob.digest}") from problem
        with file:
            while part := await asyncio.to_thread(file.read, PART_BYTES):
                hasher.update(part)
                yield part
        if f"blake3:{hasher.hexdigest()}" != blob.digest:
            raise Corrupt(
                f"the stored value {blob.digest} is damaged",
                hint="take it from another copy of the backup",
            )

    # --- the archive --------------------------------------------------------------------------

    @property
    def archive(self) -> Path:
        """Where the copy of the archive is."""
        return self.path / ARCHIVE

    def copy_archive(self, source: Path) -> None:
        """Copy what is new in an archive, its signed files last.

        Nobody may write the archive meanwhile. Interrupted, the copy is whole as far as its own
        signed files say: what these need is removed after they were replaced.
        """
        last = ("seal", "vkey", "checkpoint")
        for path in _files_below(source):
            name = path.relative_to(source).as_posix()
            if name not in last and not _is_same(path, self.archive / name):
                self._copy(path, name)
        for name in last:
            if (source / name).is_file():
                self._copy(source / name, name)
        for path in _files_below(self.archive):
            if not (source / path.relative_to(self.archive)).exists():
                path.unlink()  # a partial file that a whole one has replaced

    def _copy(self, path: Path, name: str) -> None:
        target = self.archive / name
        target.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        fresh = target.with_name(f".{target.name}.new")
        shutil.copy2(path, fresh)
        fresh.replace(target)
        self.written += target.stat().st_size


def blob_path(digest: str) -> str:
    """Where a stored value is."""
    name = digest.removeprefix("blake3:")
    if len(name) != 64 or not set(name) <= _HEX:  # noqa: PLR2004 - hexadecimal digits
        raise Corrupt(f"{digest!r} is not a digest")
    return f"blobs/{name[:2]}/{name}"


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes, entry: FileEntry) -> T:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as problem:
        raise Corrupt(f"{entry.path} cannot be read: {problem}") from problem


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name[:1] != ".")


def _is_same(path: Path, copy: Path) -> bool:
    """Whether a file of an archive was copied as it is: only erasing changes one."""
    try:
        there, here = path.stat(), copy.stat()
    except FileNotFoundError:
        return False
    return (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
