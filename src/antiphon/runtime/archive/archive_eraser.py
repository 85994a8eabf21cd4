"""Erases the bytes of one lane's records from an archive (spec §7.5).

The record files that have them are written again without them; each says instead who erased them,
and when. Entries and tiles stay as they are, so every proof of inclusion and consistency stays.
What is on the log and in replicas is not touched here (`record_eraser.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import groupby
from typing import TYPE_CHECKING

from antiphon.core.archive.record_files import Body, CheckedPacker, Erased, Unpacker
from antiphon.core.archive.tiles import HEIGHT, WIDTH

if TYPE_CHECKING:
    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.archive.archive_reader import ArchiveReader
    from antiphon.runtime.file_store import FileStore


async def erase_lane(archive: ArchiveReader, key: LaneKey, note: Erased) -> int:
    """Erase what the archive has of a lane, accepted or not; how many records that are.

    The archive must be open at its present size: call it while nobody else writes (`writing`).
    """
    places = [place for place, _ in await archive.places_of(key)]
    await erase_places(archive, places, note)
    return len(places)


async def erase_places(archive: ArchiveReader, places: Iterable[int], note: Erased) -> None:
    """Erase the records at these places, under the same condition; safe twice."""
    for number, group in groupby(sorted(places), lambda place: place >> HEIGHT):
        wanted = {place & (WIDTH - 1) for place in group}
        path = await archive.record_path(number)
        found = await read_bodies(archive.store, path)
        if any(not isinstance(found[at], Erased) for at in wanted):
            async with aclosing(_without(archive, number, wanted, note, path)) as parts:
                await archive.store.write_parts(path, parts)
        await remove_others(archive.store, path, larger=True)


async def _without(
    archive: ArchiveReader, number: int, wanted: set[int], note: Erased, path: str
) -> AsyncGenerator[bytes]:
    """The file without them. An error leaves the old one, which nobody else has, in its place."""
    packer, at = CheckedPacker(f"{path} of {archive.store}"), 0
    async with aclosing(archive.bodies(number)) as bodies:
        async for body in bodies:
            kept = note if at in wanted and not isinstance(body, Erased) else body
            at += 1
            yield packer.add([kept])
    yield packer.end()


async def read_bodies(store: FileStore, path: str) -> list[Body]:
    """What is left of each record of a file: nothing but whether it was erased, and by whom."""
    unpacker, found = Unpacker(path), list[Body]()
    async with aclosing(store.parts(path)) as parts:
        async for part in parts:
            found += (body if isinstance(body, Erased) else b"" for body in unpacker.add(part))
    unpacker.end()
    return found


async def remove_others(store: FileStore, path: str, *, larger: bool) -> None:
    """Remove record files that begin as this one does and end sooner; also those that end later.

    Larger ones are what a killed writer left: the next one writes them again.
    """
    folder, _, kept = path.rpartition("/")
    first, last = _ends(kept)
    async with aclosing(store.files(folder)) as found:
        async for other, _ in found:
            begin, end = _ends(other.rpartition("/")[2])
            if begin == first and (end < last or (larger and end > last)):
                await store.remove(other)


def _ends(name: str) -> tuple[int, int]:
    """The first and the last sequence that a record file is named by."""
    first, _, last = name.partition(".")[0].partition("-")
    return (int(first), int(last)) if first.isdigit() and last.isdigit() else (0, 0)
