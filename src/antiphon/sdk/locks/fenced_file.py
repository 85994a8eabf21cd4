"""`FencedFile`: a file that refuses what a former holder of a lock writes (docs/do/locks.md).

The highest fence that was ever used is kept beside the file, in `.<name>.fence`. A write with a
lower one is refused, however late it comes and whoever makes it. The content is replaced in one
step, so a reader sees the old text or the new one.

A fence always has sixteen digits. The next one is written over it, in one write of one sector: a
writer that is killed at any step leaves the old one or the new one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.core.clock.hlc import unpack
from antiphon.errors import StaleFence

if TYPE_CHECKING:
    from collections.abc import Iterator

FENCE_BYTES: Final = 16


class FencedFile:
    """A file on a disk that all holders of the lock share."""

    def __init__(self, path: str | Path) -> None:
        """The folder must exist; the file need not."""
        self.path = Path(path)
        self._mark = self.path.with_name(f".{self.path.name}.fence")

    @property
    def fence(self) -> str:
        """The highest fence that it was written with; empty if there is none."""
        try:
            return _whole(self._mark.read_bytes())
        except FileNotFoundError:
            return ""

    def read_text(self) -> str:
        """What it holds."""
        return self.path.read_text("utf-8")

    def write_text(self, text: str, *, fence: str) -> None:
        """Replace its content; `StaleFence` if it was written with a higher fence."""
        self.write_bytes(text.encode(), fence=fence)

    def write_bytes(self, content: bytes, *, fence: str) -> None:
        """The same with bytes."""
        with self._admitted(fence):
            fresh = self.path.with_name(f".{self.path.name}.new")
            _write(fresh, content)
            fresh.replace(self.path)
            self._sync_folder()

    def append_text(self, text: str, *, fence: str) -> None:
        """Add to its end; `StaleFence` if it was written with a higher fence."""
        with self._admitted(fence), self.path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _admitted(self, fence: str) -> Iterator[None]:
        """Alone with the file, after the fence was found high enough and written down."""
        unpack(fence)  # `Malformed` if it is no fence
        is_new = not self._mark.exists()
        mark = os.open(self._mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX)
            highest = _whole(os.pread(mark, FENCE_BYTES, 0))
            if fence < highest:
                raise StaleFence(
                    f"{self.path.name} was already written with the fence {highest}, which is"
                    f" later than {fence}",
                    hint="the lock was lost in between: take it again and look at what changed",
                )
            if fence != highest:
                # Before the content: a crash in between only makes the file stricter.
                os.pwrite(mark, fence.encode(), 0)
                os.fsync(mark)
            if is_new:
                self._sync_folder()
            yield
        finally:
            os.close(mark)

    def _sync_folder(self) -> None:
        """A new name in a folder outlives a power failure once the folder is synced."""
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _whole(mark: bytes) -> str:
    """The fence in a mark; empty if its first writer was killed before it was there."""
    return mark.decode("ascii") if len(mark) == FENCE_BYTES else ""


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
