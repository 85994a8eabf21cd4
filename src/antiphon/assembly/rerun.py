"""Runs a command again, off its mesh: inputs from files, outputs only compared."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from antiphon.assembly.command_executor import CommandTerms, open_commands
from antiphon.errors import Rejected
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.executors.executor import Assignment, Ran

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.ports import Blobs

MAX_FILES: Final = 10_000
"""The size of a directory that is searched for inputs."""
_BLOCK: Final = 1 << 20


class FolderBlobs:
    """`ports.Blobs` over files of any name below a directory, and other blobs behind them.

    What is put is dropped: only its hash is wanted.
    """

    def __init__(self, folder: Path | None, behind: Blobs | None) -> None:
        self._folder = folder
        self._behind = behind
        self._known: dict[str, Path] | None = None

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:  # noqa: ARG002
        """Read every byte, and keep none."""
        async for _ in chunks:
            pass

    @asynccontextmanager
    async def get(
        self, digest: str, *, job: tuple[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The file with this content, or the blob behind."""
        path = (await self._files()).get(digest)
        if path is not None:
            yield _read(path)
            return
        if self._behind is None:
            raise Rejected(f"no file here is {digest}", reason="no_blob")
        async with self._behind.get(digest, job=job) as chunks:
            yield chunks

    async def has(self, digest: str, *, job: tuple[str, str] | None = None) -> bool:
        """Whether it is available."""
        if digest in await self._files():
            return True
        return self._behind is not None and await self._behind.has(digest, job=job)

    async def remove(self, digest: str) -> None:
        """Does nothing: nothing is ever removed here."""

    async def _files(self) -> dict[str, Path]:
        if self._known is None:
            self._known = await asyncio.to_thread(_contents, self._folder)
        return self._known


async def run_again(
    assignment: Assignment, control: Control, artifacts: FolderBlobs, terms: CommandTerms
) -> Ran:
    """Run a command here, as a worker with these artifacts would."""
    places = open_commands(lambda: control, Artifacts(artifacts), terms, place=None)
    async with places as commands:
        executor = commands.find(assignment.kind, assignment.manifest)
        if executor is None:
            raise Rejected(
                "only commands can be run again: a handler's code is on its worker",
                reason="rerun",
            )
        return await executor.run(assignment)


def _contents(folder: Path | None) -> dict[str, Path]:
    """Every plain file below a directory, by its digest."""
    found: dict[str, Path] = {}
    count = 0
    for place, _, names in os.walk(folder) if folder is not None else ():
        for name in sorted(names):
            path = Path(place, name)
            count += 1
            if count > MAX_FILES:
                return found
            if path.is_file() and not path.is_symlink():
                found.setdefault(_digest_of(path), path)
    return found


def _digest_of(path: Path) -> str:
    found = blake3()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return f"blake3:{found.hexdigest()}"


async def _read(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    with file:
        while block := await asyncio.to_thread(file.read, _BLOCK):
            yield block
