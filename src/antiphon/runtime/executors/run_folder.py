"""A directory for each run of a command, and nothing left of it afterwards.

They lie in one place that belongs to this process alone. Whoever held it before and was killed
may have left something there: it goes first.
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
    """Makes directories for runs."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @asynccontextmanager
    async def one(self, name: str) -> AsyncIterator[Path]:
        """A fresh directory, for this user only, while the block runs."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.place))
        try:
            yield folder
        finally:
            # The thread goes on even if this wait is cancelled, too.
            await asyncio.shield(asyncio.to_thread(clear_away, folder))


@asynccontextmanager
async def run_folders(place: Path | None) -> AsyncIterator[RunFolders]:
    """A place for runs: the one given, which must be this process's own, or a temporary one."""
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
    """Remove a directory with everything in it, directories that were locked included."""
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        return
    for place, names, _ in os.walk(folder):
        for path in (Path(place), *(Path(place, name) for name in names)):
            with contextlib.suppress(OSError):
                if not path.is_symlink():
                    path.chmod(PRIVATE_DIRECTORY)
    shutil.rmtree(folder, ignore_errors=True)
