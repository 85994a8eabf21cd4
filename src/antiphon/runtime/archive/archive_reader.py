"""Reads an archive, with nothing else: one lane without the rest, proofs, and bundles from them.

A writer may be at work. A reader sees the archive at the size that it had when it was opened.

What it returns has not been checked against the root, except where it says so: a bundle made of it
is checked as any other, and `archive_check` checks everything.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import groupby
from typing import Final, TypeVar

from antiphon.core.archive import checkpoint as checkpoints
from antiphon.core.archive import entries, record_files, tiles
from antiphon.core.archive.checkpoint import CHECKPOINT, SEAL, Checkpoint
from antiphon.core.archive.record_files import Body, Erased
from antiphon.core.archive.signed_note import Note
from antiphon.core.archive.tiles import ENTRIES, HEIGHT, WIDTH, Tile, tile_of
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.families.seals.ops import MeshSeal
from antiphon.core.families.seals.state import Leaf, read_leaf
from antiphon.core.opened_record import open_anywhere
from antiphon.core.proof import merkle
from antiphon.core.protocol import PROTOCOL, Protocol
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, Malformed, Misconfigured
from antiphon.files import FileMissing
from antiphon.runtime.archive.place_index import PlaceIndex
from antiphon.runtime.archive.record_source import FoundRecord, FoundSeal, erased
from antiphon.runtime.file_store import FileStore

BUNDLES_KEPT: Final = 64
BUNDLE_BYTES: Final = 8 * 1024 * 1024
INDEXED_AT_ONCE: Final = 64 * WIDTH

T = TypeVar("T")


class _Missing(Exception):
    """A tile that has to be fetched first."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile


class ArchiveReader:
    """One archive at one size: that of the seal which was there when it was opened."""

    def __init__(
        self,
        store: FileStore,
        checkpoint: tuple[Checkpoint, Note],
        seal: FoundSeal,
        *,
        index: PlaceIndex,
        protocol: Protocol,
    ) -> None:
        """Use `open`."""
        self.store, self.protocol = store, protocol
        self.checkpoint, self.note = checkpoint
        self.mesh, self.size = self.checkpoint.mesh, seal.body.size
        self._seal, self._index = seal, index
        self._leaves = BoundedCache[int, list[Leaf]](most=BUNDLES_KEPT, most_bytes=BUNDLE_BYTES)
        self._tiles = BoundedCache[Tile, bytes](
            most=tiles.TILES_KEPT, most_bytes=tiles.TILES_KEPT * tiles.TILE_BYTES
        )

    @classmethod
    async def open(
        cls, store: FileStore, *, index: PlaceIndex | None = None, protocol: Protocol = PROTOCOL
    ) -> ArchiveReader:
        """Open an archive; without an index of its own, one is built in memory when needed."""
        noted, sealed = await store.read(CHECKPOINT), await store.read(SEAL)
        if noted is None or sealed is None:
            raise Misconfigured(
                f"there is no archive in {store}",
                hint="set ANTIPHON_ARCHIVE as for the node that writes it, or name it: --from DIR",
            )
        try:
            checkpoint = checkpoints.read(noted)
        except Malformed as problem:
            raise Corrupt(f"the checkpoint of {store} is damaged: {problem.message}") from problem
        op = open_anywhere(protocol, checkpoint[0].mesh, sealed).op
        if not isinstance(op, MeshSeal) or op.body.size < checkpoint[0].size:
            raise Corrupt(f"the seal of {store} is damaged, or older than its checkpoint")
        return cls(
            store,
            checkpoint,
            FoundSeal(sealed, op),
            index=index or PlaceIndex(),
            protocol=protocol,
        )

    # --- as the source of a bundle ----------------------------------------------------------

    async def newest_seal(self) -> FoundSeal | None:
        """See `RecordSource.newest_seal`."""
        return self._seal

    async def accepted(self, key: LaneKey) -> list[FoundRecord]:
        """See `RecordSource.accepted`."""
        found = await self.places_of(key)
        return await self._found([place for place, leaf in found if leaf.verdict is Verdict.OK])

    async def control(self, upto: int) -> list[FoundRecord]:
        """See `RecordSource.control`."""
        await self.update_index()
        places = self._index.of_control()
        return await self._found([at for at in places if (await self.leaf_at(at)).seq <= upto])

    async def records(self, seqs: Sequence[int]) -> list[FoundRecord]:
        """See `RecordSource.records`."""
        places = [await self._place_of(seq) for seq in seqs]
        return await self._found([place for place in places if place is not None])

    async def path(self, leaf: int, size: int) -> list[str]:
        """See `RecordSource.path`."""
        found = await self.from_tiles(lambda full: merkle.inclusion(leaf, size, full))
        return [node.hex() for node in found]

    # --- looking things up --------------------------------------------------------------------

    async def lanes_named(self, prefix: str) -> list[LaneKey]:
        """The lanes whose names begin so, each once."""
        await self.update_index()
        found = dict[LaneKey, None]()
        for place in self._index.beginning_with(prefix):
            key = self.protocol.lane_of((await self.leaf_at(place)).subject)
            if key is not None and key.name.startswith(prefix):
                found[key] = None
        return list(found)

    async def places_of(self, key: LaneKey) -> list[tuple[int, Leaf]]:
        """Where a lane's records are, and what the seal says of each, oldest first."""
        await self.update_index()
        leaves = [(place, await self.leaf_at(place)) for place in self._index.of_lane(key)]
        return [one for one in leaves if self.protocol.lane_of(one[1].subject) == key]

    async def newest_lanes(self, family: str) -> AsyncGenerator[LaneKey]:
        """The lanes of a family, the one with the newest record first, each once."""
        seen: set[LaneKey] = set()
        for place in reversed(range(self.size)):
            key = self.protocol.lane_of((await self.leaf_at(place)).subject)
            if key is not None and key.family == family and key not in seen:
                seen.add(key)
                yield key

    async def root_at(self, size: int) -> bytes:
        """The root over the first `size` records, from the tiles."""
        return await self.from_tiles(lambda full: merkle.root_of(size, full))

    async def consistency(self, old: int, new: int) -> list[bytes]:
        """What shows that the tree of `old` records is the beginning of that of `new`."""
        return await self.from_tiles(lambda full: merkle.consistency(old, new, full))

    async def leaf_at(self, place: int) -> Leaf:
        """What the seal says of the record at a place in the tree."""
        number = place >> HEIGHT
        leaves = self._leaves.get(number)
        if leaves is None:
            tile = tile_of(ENTRIES, place, self.size)
            leaves = [self._read_leaf(one, tile) for one in await self.entries(tile)]
            self._leaves.put(number, leaves, sum(len(one.subject) + 200 for one in leaves))
        return leaves[place & (WIDTH - 1)]

    async def entries(self, tile: Tile) -> list[bytes]:
        """The entries of a bundle."""
        data = await self.store.read(tile.path)
        if data is not None:
            return entries.split(data, tile)
        full = tile._replace(width=WIDTH)
        data = None if tile.is_full else await self.store.read(full.path)
        if data is None:
            raise Corrupt(f"the archive lacks {tile.path}")
        return entries.split(data, full)[: tile.width]

    async def tile(self, tile: Tile) -> bytes:
        """A tile of hashes; of one that has grown since, its beginning."""
        data = await self.store.read(tile.path)
        if data is None and not tile.is_full:
            data = await self.store.read(tile._replace(width=WIDTH).path)
            data = None if data is None else data[: tile.width * merkle.HASH_BYTES]
        if data is None:
            raise Corrupt(f"the archive lacks {tile.path}")
        return data

    async def record_path(self, number: int) -> str:
        """Where the records of a bundle of entries lie."""
        first = number << HEIGHT
        last = min(first + WIDTH, self.size) - 1
        ends = ((await self.leaf_at(first)).seq, (await self.leaf_at(last)).seq)
        return record_files.path_of(*ends)

    async def bodies(self, number: int) -> AsyncGenerator[Body]:
        """The records of one file, one after another; its number is that of its entries.

        A writer replaces the last file by a larger one. This reads as much of that as there was.
        """
        own = path = await self.record_path(number)
        left = min(WIDTH, self.size - (number << HEIGHT))
        while True:
            try:
                async with aclosing(self._unpacked(path)) as bodies:
                    async for body in bodies:
                        if path != own and not left:
                            return
                        left -= 1
                        yield body
            except FileMissing:
                grown = await self._grown_path(number)
                if grown == path:
                    raise
                path = grown
            else:
                return

    async def _unpacked(self, path: str) -> AsyncGenerator[Body]:
        unpacker = record_files.Unpacker(path)
        async with aclosing(self.store.parts(path)) as parts:
            async for part in parts:
                for body in unpacker.add(part):
                    yield body
        unpacker.end()

    async def _grown_path(self, number: int) -> str:
        """Where the records of a bundle of entries lie now: by the newest seal."""
        sealed = await self.store.read(SEAL) or b""
        op = open_anywhere(self.protocol, self.mesh, sealed).op
        size = op.body.size if isinstance(op, MeshSeal) else 0
        if size <= self.size:
            return await self.record_path(number)
        tile = tile_of(ENTRIES, number << HEIGHT, size)
        first, *_, last = [self._read_leaf(one, tile) for one in await self.entries(tile)]
        return record_files.path_of(first.seq, last.seq)

    # --- inside -----------------------------------------------------------------------------

    def _read_leaf(self, entry: bytes, tile: Tile) -> Leaf:
        try:
            return read_leaf(entry)
        except Malformed as problem:
            raise Corrupt(f"{tile.path} has an entry that is no leaf") from problem

    async def from_tiles(self, compute: Callable[[merkle.FullSubtree], T]) -> T:
        """The result of a computation over the tree, whose tiles are fetched as it needs them."""
        fetched: dict[Tile, bytes] = {}

        def read(tile: Tile) -> bytes:
            data = fetched.get(tile) or self._tiles.get(tile)
            if data is None:
                raise _Missing(tile)
            return data

        while True:
            try:
                return compute(tiles.full_subtrees(self.size, read))
            except _Missing as missing:
                data = await self.tile(missing.tile)
                fetched[missing.tile] = data
                self._tiles.put(missing.tile, data, len(data))

    async def _place_of(self, seq: int) -> int | None:
        """The place of a record in the tree; None if it is not there."""
        low, high = 0, min(seq, self.size)  # each place has its own sequence, counted from 1
        while low < high:
            middle = high - 1 if high == min(seq, self.size) else (low + high) // 2
            found = (await self.leaf_at(middle)).seq
            if found == seq:
                return middle
            low, high = (middle + 1, high) if found < seq else (low, middle)
        return None

    async def _found(self, places: Sequence[int]) -> list[FoundRecord]:
        """These records with their bytes, in the order of the log."""
        found: list[FoundRecord] = []
        for number, group in groupby(sorted(set(places)), lambda place: place >> HEIGHT):
            wanted = [place & (WIDTH - 1) for place in group]
            at = -1
            async with aclosing(self.bodies(number)) as bodies:
                async for body in bodies:
                    at += 1
                    if at == wanted[0]:
                        place = (number << HEIGHT) + wanted.pop(0)
                        found.append(_checked(place, await self.leaf_at(place), body))
                    if not wanted:
                        break
            if wanted:
                raise Corrupt(f"a record file lacks what the archive's bundle {number} names")
        return found

    async def update_index(self) -> None:
        """Add to the index what it does not have yet; build it again if it is of another tree."""
        mesh, done, root = self._index.built()
        if (mesh, done) == (self.mesh, self.size):
            return
        if done and (mesh != self.mesh or done > self.size or root != await self.root_at(done)):
            self._index.begin_anew()
            done = 0
        while done < self.size:
            upto = min(done - done % INDEXED_AT_ONCE + INDEXED_AT_ONCE, self.size)
            found: list[tuple[LaneKey | None, int]] = []
            for place in range(done, upto):
                where = self.protocol.place_of((await self.leaf_at(place)).subject)
                found.append((where.key if where is not None else None, place))
            self._index.add(self.mesh, upto, await self.root_at(upto), found)
            done = upto


def _checked(place: int, leaf: Leaf, body: Body) -> FoundRecord:
    if isinstance(body, Erased):
        raise erased(leaf.seq, body.by, body.at_ms)
    if digest(body) != leaf.digest:
        raise Corrupt(f"record {leaf.seq} in the archive is not what its entry says")
    return FoundRecord(
        seq=leaf.seq,
        commit_ms=leaf.commit_ms,
        subject=leaf.subject,
        verdict=leaf.verdict,
        digest=leaf.digest,
        payload=body,
        leaf=place,
        after=leaf.after,
    )
