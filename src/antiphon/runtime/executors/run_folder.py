"""A temporary directory for each run of a command, removed afterwards.

They are in one directory that belongs to this process alone. A process that used it before and was
killed may have left something there, which is removed first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.files import PRIVATE_DIRECTORY


class RunFolders:
    """Creates directories for runs."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[Path]:
        """A fresh directory, for this user only, while the block runs."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.place))
        try:
            yield folder
        finally:
            # The thread continues even if this wait is cancelled, too.
            await asyncio.shield(asyncio.to_thread(clear_away, folder))


@asynccontextmanager
async def run_folders(place: Path | None) -> AsyncIterator[RunFolders]:
    """A directory for runs: the given one, which must be this process's own, or a temporary one."""
    if place is None:
        place = Path(tempfile.mkdtemp(prefix="antiphon-runs-"))
    else:
        await asyncio.to_thread(clear_away, place)
        place.mkdir(mode=PRIVATE_DIRECTORY, parents=True)
    try:
        yield RunFolders(place)
    finally:
        await asyncio.shield(asyncio.to_thread(clear_away, place))


def clear_away(folder: Path) -> None:
    """Remove a directory with everything in it, unreadable directories included."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for place, names, _ in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(PRIVATE_DIRECTORY)
    shutil.rmtree(folder, ignore_errors=True)
