"""Blobs that wait on disk until the engine can be reached: each in a file named after its digest.

A blob is whole and synced before anything names it. Whatever names it is sent after it
(`runtime.outbox`).
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
from blake3 import blake3

from antiphon.errors import Corrupt, Misconfigured, Unavailable
from antiphon.files import PRIVATE_DIRECTORY
from antiphon.runtime.artifacts.safe_file import Draft, SafeFile, open_plain
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
    from pathlib import Path

    from antiphon.ports import Blobs

BLOCK_BYTES: Final = 1024 * 1024
UNNAMED_S: Final = 3600.0
"""How long a blob may wait that nothing names: whoever stored it may be about to."""

log = LazyLogger(__name__)

_DIGEST: Final = re.compile(rb"blake3:[0-9a-f]{64}")


def named_in(content: object) -> set[str]:
    """The digests that a record, or several, may name; more rather than fewer."""
    return {one.decode() for one in _DIGEST.findall(msgspec.json.encode(content))}


@contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Whatever the disk refuses in the block is `Unavailable`: services that wait go on waiting."""
    try:
        yield
    except OSError as problem:
        log.warning("outbox_disk_problem", folder=str(folder), problem=str(problem))
        raise Unavailable(
            f"the outbox cannot be used: {problem.strerror or problem}",
            hint=f"look at the disk and the permissions of {folder}",
        ) from problem


class WaitingBlobs:
    """The blobs that wait in one folder."""

    def __init__(self, folder: Path, room: Callable[[], int]) -> None:
        """The folder need not exist yet. `room` says how many more bytes fit."""
        self._folder = folder
        self._room = room

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """Keep a blob; it is on disk when this returns. `Unavailable` if there is no room."""
        room, size, sums = self._room(), 0, blake3()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
            with SafeFile.at(self._path(digest)) as landing, Draft(landing) as draft:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > room:
                        raise Unavailable(
                            f"the outbox has no room for so large a value: {room:,} bytes are left",
                            hint="'antiphon outbox' lists what waits there",
                        )
                    sums.update(chunk)
                    draft.write(chunk)
                if f"blake3:{sums.hexdigest()}" != digest:
                    raise Corrupt(f"the content for {digest} hashes to blake3:{sums.hexdigest()}")
                if size > BLOCK_BYTES:
                    await asyncio.to_thread(draft.settle)
                else:
                    draft.settle()
                os.fsync(landing.folder)
        except (Misconfigured, OSError) as problem:
            raise Unavailable(
                f"the outbox cannot be written: {problem}",
                hint=f"make room on the disk of {self._folder}",
            ) from problem

    def has(self, digest: str) -> bool:
        """Whether a blob waits here."""
        return self._path(digest).is_file()

    async def stream(self, digest: str) -> AsyncGenerator[bytes]:
        """A blob, piece by piece; nothing checks it here.

        `Unavailable` if it was removed just now; `Misconfigured` if it cannot be read.
        """
        try:
            file = open_plain(self._path(digest))
        except Misconfigured as problem:
            if isinstance(problem.__cause__, FileNotFoundError):
                raise Unavailable(f"{digest} does not wait here any more") from problem
            raise
        try:
            while block := _read(file, digest):
                yield block
        finally:
            os.close(file)

    async def send(self, digest: str, blobs: Blobs) -> None:
        """Store a blob on the mesh; safe twice. `Corrupt` if its file was damaged."""
        await blobs.put(self.stream(digest), digest=digest)

    def touch(self, content: object) -> list[str]:
        """The blobs here that some content names; they wait on, since it may soon be written."""
        found = self.waiting(content)
        for digest in found:
            with on_disk(self._folder), suppress(FileNotFoundError):
                os.utime(self._path(digest))
        return found

    def waiting(self, content: object) -> list[str]:
        """The blobs here that some content names."""
        if not self.size:
            return []
        return sorted(one for one in named_in(content) if self.has(one))

    def remove(self, digest: str) -> None:
        """Forget a blob; safe twice."""
        with on_disk(self._folder):
            self._path(digest).unlink(missing_ok=True)

    def remove_unnamed(self, named: set[str]) -> None:
        """Forget what a process left behind that ended before it named it, drafts included."""
        for path in self._files():
            with on_disk(self._folder), suppress(FileNotFoundError):
                is_old = time.time() - path.stat().st_mtime > UNNAMED_S
                if is_old and f"blake3:{path.name}" not in named:
                    path.unlink()

    @property
    def size(self) -> int:
        """The bytes that all of them take up."""
        with on_disk(self._folder):
            return sum(map(_size, self._files()))

    def _files(self) -> list[Path]:
        with on_disk(self._folder), suppress(FileNotFoundError):
            return sorted(self._folder.iterdir())
        return []

    def _path(self, digest: str) -> Path:
        return self._folder / digest.removeprefix("blake3:")


def _read(file: int, digest: str) -> bytes:
    try:
        return os.read(file, BLOCK_BYTES)
    except OSError as problem:
        raise Misconfigured(
            f"{digest}, which waits here, cannot be read: {problem.strerror}"
        ) from problem


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
