"""The cache of fetched blobs: bounded, shared by this machine's processes, never trusted.

    cache/<first two digits>/<64 hex digits>

A cached blob appears in one step and is never changed, so several processes may use one cache. Its
modification time is when it was last used; adding one removes the least recently used ones beyond
the bound. A blob is checked against its name whenever it is read: a damaged one is removed and
fetched again.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.files import PRIVATE_DIRECTORY, PRIVATE_MODE
from antiphon.runtime.artifacts.safe_file import DRAFT_SUFFIX, SafeFile

MAX_ENTRIES: Final = 100_000
ABANDONED_S: Final = 24 * 3600
"""Half-written blobs older than this belong to processes that have ended."""
_NAME: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class _Entry(Struct, frozen=True):
    path: Path
    size: int
    used_ns: int


class BlobCache:
    """A directory of blobs. With a bound of 0 it stores nothing."""

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        """The directory is created with the first blob."""
        self._path = path
        self.max_bytes = max_bytes

    def takes(self, size: int) -> bool:
        """Whether a blob of this size is worth keeping: one alone must not push out the rest."""
        return 0 < size <= self.max_bytes // 2

    def find(self, digest: str) -> int | None:
        """The blob's bytes as an open file, or None. Counts as a use."""
        path = self._place(digest)
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return file

    def landing(self, digest: str) -> SafeFile:
        """Where a new blob is written."""
        path = self._place(digest)
        path.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        return SafeFile.at(path)

    def drop(self, digest: str) -> None:
        """Remove a blob; no error if there is none."""
        with suppress(OSError):
            self._place(digest).unlink()

    def trim(self) -> None:
        """Remove the least recently used blobs beyond the bound; one process at a time."""
        try:
            lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another process is trimming
        else:
            self._trim()
        finally:
            os.close(lock)

    def _trim(self) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry.used_ns, reverse=True)
        total = 0
        for kept, entry in enumerate(entries):
            total += entry.size
            if total > self.max_bytes or kept >= MAX_ENTRIES:
                with suppress(OSError):
                    entry.path.unlink()

    def _entries(self) -> list[_Entry]:
        found: list[_Entry] = []
        abandoned_ns = time.time_ns() - ABANDONED_S * 1_000_000_000
        for folder in self._path.iterdir():
            if not folder.is_dir():
                continue
            for entry in os.scandir(folder):
                with suppress(OSError):
                    stat = entry.stat(follow_symlinks=False)
                    if _NAME.fullmatch(entry.name):
                        found.append(_Entry(Path(entry.path), stat.st_size, stat.st_mtime_ns))
                    elif entry.name.endswith(DRAFT_SUFFIX) and stat.st_mtime_ns < abandoned_ns:
                        Path(entry.path).unlink()
        return found

    def _place(self, digest: str) -> Path:
        name = digest.removeprefix("blake3:")
        return self._path / name[:2] / name
