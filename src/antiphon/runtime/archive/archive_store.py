"""Where an archive's files lie: a folder for now.

A file appears whole or not at all, and one process at a time writes. Readers list nothing: the name
of every file follows from others.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import typing
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final

from antiphon.errors import Corrupt, Misconfigured
from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE
from antiphon.runtime.identity.key_files import FileLock, lock_file

CHECKPOINT: Final = "checkpoint"
SEAL: Final = "seal"
VKEY: Final = "vkey"
"""Files beside tiles and records."""
MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Of a file that is read whole: 256 of the longest entries have half of it."""
PART_BYTES: Final = 256 * 1024


class ArchiveStore(typing.Protocol):
    """Files by their paths."""

    def lock(self) -> FileLock:
        """Be the only process that writes here until `release`; `Held` if another one is."""

    async def read(self, path: str) -> bytes | None:
        """A small file; None if there is none."""

    def parts(self, path: str) -> AsyncGenerator[bytes]:
        """A file in parts; `Corrupt` if there is none."""

    async def write(self, path: str, data: bytes) -> None:
        """Put a file there, whole, in place of what was there."""

    async def write_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """The same, from parts."""

    async def has(self, path: str) -> bool:
        """Whether there is such a file."""

    async def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""

    async def remove(self, path: str) -> None:
        """Remove a file, or all files below a path; no error if there is none."""


class FolderStore:
    """An archive in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def lock(self) -> FileLock:
        """Be the only process that writes here until `release`; `Held` if another one is."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        except OSError as problem:
            raise Misconfigured(
                f"{self.folder} cannot be used for an archive: {problem.strerror}",
                hint="ANTIPHON_ARCHIVE names a directory that this process may write to",
            ) from problem
        return lock_file(self.folder / ".lock", f"another process writes the archive {self.folder}")

    async def read(self, path: str) -> bytes | None:
        """See `ArchiveStore.read`."""
        return await asyncio.to_thread(self._read, path)

    def _read(self, path: str) -> bytes | None:
        try:
            with (self.folder / path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        if len(data) > MAX_FILE_BYTES:
            raise Corrupt(f"{path} is larger than any file of an archive")
        return data

    async def parts(self, path: str) -> AsyncGenerator[bytes]:
        """See `ArchiveStore.parts`."""
        try:
            file = await asyncio.to_thread((self.folder / path).open, "rb")
        except OSError as problem:
            raise Corrupt(f"the archive lacks {path}") from problem
        with file:
            while data := await asyncio.to_thread(file.read, PART_BYTES):
                yield data

    async def write(self, path: str, data: bytes) -> None:
        """See `ArchiveStore.write`."""

        async def whole() -> AsyncGenerator[bytes]:
            yield data

        async with aclosing(whole()) as parts:
            await self.write_parts(path, parts)

    async def write_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Written under another name, synced, renamed: a crash leaves the old file or the new."""
        target = self.folder / path
        fresh = target.with_name(f".{target.name}.new")
        handle = await asyncio.to_thread(_created, fresh)
        try:
            async for part in parts:
                await asyncio.to_thread(_write_all, handle, part)
            await asyncio.to_thread(os.fsync, handle)
        finally:
            os.close(handle)
        await asyncio.to_thread(_renamed, fresh, target)

    async def has(self, path: str) -> bool:
        """See `ArchiveStore.has`."""
        return await asyncio.to_thread((self.folder / path).is_file)

    async def names(self, folder: str) -> list[str]:
        """See `ArchiveStore.names`."""
        return await asyncio.to_thread(_names, self.folder / folder)

    async def remove(self, path: str) -> None:
        """See `ArchiveStore.remove`."""
        await asyncio.to_thread(_removed, self.folder / path)


def _created(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _renamed(fresh: Path, target: Path) -> None:
    fresh.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
