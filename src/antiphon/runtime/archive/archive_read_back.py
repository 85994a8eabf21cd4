"""Reads back what a writer has put into an archive, before the checkpoint over it is signed.

With a reader of that size, from where the files are, one record at a time. What leaves the log is
nowhere else afterwards (decision 0094).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from antiphon.core.archive import checkpoint as checkpoints
from antiphon.core.archive.checkpoint import Checkpoint
from antiphon.core.archive.record_files import Erased
from antiphon.core.archive.signed_note import Note, NoteKey
from antiphon.errors import Corrupt, Unreadable
from antiphon.read_back import read_back, read_back_stored
from antiphon.runtime.archive.archive_check import hashes_of, records_of
from antiphon.runtime.archive.archive_reader import ArchiveReader

if TYPE_CHECKING:
    from antiphon.core.archive.tiles import Tile
    from antiphon.core.protocol import Protocol
    from antiphon.runtime.archive.place_index import PlaceIndex
    from antiphon.runtime.archive.record_source import FoundSeal
    from antiphon.runtime.file_store import FileStore

Gone = Sequence[Erased | None]
"""Who erased each record of a bundle; None: its bytes are there."""


class ArchiveReadBack:
    """The files of one round of a writer; each method raises `Unreadable`."""

    def __init__(
        self,
        store: FileStore,
        said: Checkpoint,
        seal: FoundSeal,
        *,
        index: PlaceIndex,
        protocol: Protocol,
    ) -> None:
        """`said` is what the round's checkpoint will say."""
        self._store, self._said = store, said
        unsigned = (said, Note("", ()))
        self._reader = ArchiveReader(store, unsigned, seal, index=index, protocol=protocol)

    async def bundle(self, tile: Tile, hashes: list[bytes], gone: Gone) -> None:
        """A bundle of entries, its tile of level 0 and its record file."""
        what, reader = f"{tile.path} of {self._store}", self._reader
        await read_back_stored(what, hashes, hashes_of, reader, tile.number)
        what = f"{await reader.record_path(tile.number)} of {self._store}"
        await read_back_stored(what, list(gone), self._gone, tile.number)

    async def is_whole(self, tile: Tile, hashes: list[bytes]) -> bool:
        """Whether these files are there, and as they should be: another writer may have begun."""
        try:
            await read_back_stored(tile.path, hashes, hashes_of, self._reader, tile.number)
            await self._gone(tile.number)
        except (Corrupt, Unreadable):
            return False
        return True

    async def _gone(self, number: int) -> list[Erased | None]:
        found: list[Erased | None] = []
        async with aclosing(records_of(self._reader, number)) as records:
            async for _, body in records:
                found.append(body if isinstance(body, Erased) else None)
                await asyncio.sleep(0)  # records are unpacked and hashed between two turns
        return found

    async def tile(self, tile: Tile, data: bytes) -> None:
        """A tile above level 0."""
        what = f"{tile.path} of {self._store}"
        await read_back_stored(what, data, self._reader.tile, tile)

    async def root(self) -> None:
        """The root, as the tiles give it."""
        what = f"the root of {self._store}"
        await read_back_stored(what, self._said.root, self._reader.root_at, self._said.size)

    def checkpoint(self, data: bytes, key: NoteKey) -> None:
        """The signed checkpoint, which is not written yet."""
        read_back(f"the checkpoint of {self._store}", (self._said, True), _signed_by, data, key)


def _signed_by(data: bytes, key: NoteKey) -> tuple[Checkpoint, bool]:
    found, note = checkpoints.read(data)
    return found, note.is_signed_by(key)


async def opened(store: FileStore, key: NoteKey) -> tuple[Checkpoint, bool]:
    """What the archive says to a reader who opens it now, and whether this key signed that."""
    reader = await ArchiveReader.open(store)
    return reader.checkpoint, reader.note.is_signed_by(key)
