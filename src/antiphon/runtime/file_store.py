"""Where the files of archives and backups lie: a folder here, a bucket in `engines.objects`.

A file appears whole or not at all, and one process at a time writes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from antiphon.errors import Corrupt, Held, Misconfigured
from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE, FileMissing
from antiphon.runtime.identity.key_files import lock_file

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Of a file that is read whole, unless its reader knows better: 256 of the longest entries of an
archive have half of it."""
PART_BYTES: Final = 256 * 1024
LOCK: Final = ".lock"
FRESH: Final = ".new"
"""How the name of a file ends that is being written; it begins with a dot."""
TRIES: Final = 50
PAUSE_S: Final = 0.1


class FileStore(typing.Protocol):
    """Files by their paths."""

    def below(self, folder: str) -> FileStore:
        """The files of one folder, by their paths in it."""

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Be the only one that writes here while the block runs; `Held` if another one is."""

    async def read(self, path: str, *, most: int = MAX_FILE_BYTES) -> bytes | None:
        """A small file; None if there is none, `Corrupt` if it is larger than `most`."""

    def parts(self, path: str) -> AsyncGenerator[bytes]:
        """A file in parts; `FileMissing` if there is none."""

    async def write(self, path: str, data: bytes) -> None:
        """Put a file there, whole, in place of what was there."""

    async def write_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """The same, from parts; nothing is there if they end with an error."""

    async def has(self, path: str) -> bool:
        """Whether there is such a file."""

    def files(self, folder: str = "") -> AsyncGenerator[tuple[str, str]]:
        """All files below a folder, in no order: path, and a mark that changes with the content."""

    async def remove(self, path: str) -> None:
        """Remove a file, or all files below a path; no error if there is none."""


class FolderStore:
    """Files in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self.folder = folder
        self._is_tidy = False
        """Whether what killed writers left was removed."""

    def __str__(self) -> str:
        return str(self.folder)

    def below(self, folder: str) -> FolderStore:
        """See `FileStore.below`."""
        return FolderStore(self.folder / folder)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """See `FileStore.locked`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        except OSError as problem:
            raise Misconfigured(
                f"{self.folder} cannot be used: {problem.strerror}",
                hint="name a directory that this process may write to",
            ) from problem
        lock = lock_file(self.folder / LOCK, f"another process writes {self.folder}")
        try:
            if not self._is_tidy:  # once is enough: who lives removes its own
                await asyncio.to_thread(_remove_half_files, self.folder)
                self._is_tidy = True
            yield
        finally:
            lock.release()

    async def read(self, path: str, *, most: int = MAX_FILE_BYTES) -> bytes | None:
        """See `FileStore.read`."""
        return await asyncio.to_thread(self._read, path, most)

    def _read(self, path: str, most: int) -> bytes | None:
        try:
            with (self.folder / path).open("rb") as file:
                data = file.read(most + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        if len(data) > most:
            raise too_large(path)
        return data

    async def parts(self, path: str) -> AsyncGenerator[bytes]:
        """See `FileStore.parts`."""
        try:
            file = await asyncio.to_thread((self.folder / path).open, "rb")
        except OSError as problem:
            raise FileMissing(f"{self} lacks {path}") from problem
        with file:
            while data := await asyncio.to_thread(file.read, PART_BYTES):
                yield data

    async def write(self, path: str, data: bytes) -> None:
        """See `FileStore.write`."""

        async def whole() -> AsyncGenerator[bytes]:
            yield data

        async with aclosing(whole()) as parts:
            await self.write_parts(path, parts)

    async def write_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """Written under another name, synced, renamed: a crash leaves the old file or the new."""
        if ".." in Path(path).parts or Path(path).is_absolute():
            raise Corrupt(f"{path!r} is not the path of a file here")
        target = self.folder / path
        fresh = target.with_name(f".{target.name}{FRESH}")
        handle = await asyncio.to_thread(_created, fresh)
        try:
            async for part in parts:
                await asyncio.to_thread(_write_all, handle, part)
            await asyncio.to_thread(os.fsync, handle)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        await asyncio.to_thread(_renamed, fresh, target)

    async def has(self, path: str) -> bool:
        """See `FileStore.has`."""
        return await asyncio.to_thread((self.folder / path).is_file)

    async def files(self, folder: str = "") -> AsyncGenerator[tuple[str, str]]:
        """See `FileStore.files`."""
        for found in await asyncio.to_thread(lambda: list(self._files(folder))):
            yield found

    def _files(self, folder: str) -> Iterator[tuple[str, str]]:
        for place, _, names in os.walk(self.folder / folder):
            for name in names:
                if not name.startswith("."):  # the lock, and what is being written
                    path = Path(place, name)
                    said = path.stat()
                    mark = f"{said.st_size} {said.st_mtime_ns} {said.st_ino}"
                    yield path.relative_to(self.folder).as_posix(), mark

    async def remove(self, path: str) -> None:
        """See `FileStore.remove`."""
        await asyncio.to_thread(_removed, self.folder / path)


@asynccontextmanager
async def writing(store: FileStore) -> AsyncIterator[None]:
    """Be the only writer while the block runs; a running node has an archive's turn for moments."""
    async with AsyncExitStack() as stack:
        for _ in range(TRIES - 1):
            try:
                await stack.enter_async_context(store.locked())
            except Held:
                await asyncio.sleep(PAUSE_S)
            else:
                break
        else:
            await stack.enter_async_context(store.locked())
        yield


async def copy_files(source: FileStore, target: FileStore) -> None:
    """Copy everything."""
    async with aclosing(source.files()) as found:
        async for path, _ in found:
            async with aclosing(source.parts(path)) as parts:
                await target.write_parts(path, parts)


def too_large(path: str) -> Corrupt:
    """A file has more than whoever reads it expects."""
    return Corrupt(f"{path} is larger than it can be")


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


def _remove_half_files(folder: Path) -> None:
    """Remove what killed writers had begun: it may have bytes that were to be forgotten since."""
    for place, folders, names in os.walk(folder):
        for name in names:
            if name.startswith(".") and name.endswith(FRESH):
                Path(place, name).unlink(missing_ok=True)
        # Whoever has the lock of a folder below may be writing there.
        folders[:] = [one for one in folders if not Path(place, one, LOCK).exists()]


def _removed(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
