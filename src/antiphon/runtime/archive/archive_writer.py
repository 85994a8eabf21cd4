"""Writes what is sealed to the archive, beside the coordinator's full node (spec §7.5).

A round copies everything up to the node's newest seal: record files, entries, tiles, then the seal
and last of all the checkpoint. All of them are read back before it is signed, so whatever the
checkpoint covers is there and can be read. What a killed writer left behind is written again, or
kept where it is complete: full files are always the same, but for what was forgotten meanwhile.

Only the coordinator's key signs checkpoints, so others wait until they are the coordinator. A
writer goes on only with an archive of its own history: if the roots differ it stops and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Final

from antiphon.core.archive import checkpoint as checkpoints
from antiphon.core.archive import entries, record_files, tiles
from antiphon.core.archive.checkpoint import CHECKPOINT, SEAL, VKEY, Checkpoint
from antiphon.core.archive.record_files import Body, Erased, Packer, Unpacker
from antiphon.core.archive.signed_note import NoteKey
from antiphon.core.archive.tiles import ENTRIES, HEIGHT, Tile
from antiphon.core.proof.merkle import HASH_BYTES, leaf_hash
from antiphon.errors import AntiphonError, Corrupt, Unreadable
from antiphon.read_back import read_back_stored
from antiphon.runtime.archive.archive_check import signer_of
from antiphon.runtime.archive.archive_eraser import read_bodies, remove_others
from antiphon.runtime.archive.archive_orders import ArchiveOrders
from antiphon.runtime.archive.archive_read_back import ArchiveReadBack, opened
from antiphon.runtime.archive.place_index import PlaceIndex
from antiphon.runtime.archive.record_source import FoundSeal, ReplicaSource
from antiphon.runtime.attention.item_guard import ItemGuard
from antiphon.runtime.file_store import FileStore
from antiphon.runtime.replica.replica_tree import Gone, Row, leaf_of_row
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import Keyring
    from antiphon.runtime.node.full_node import FullNode

ROUND_S: Final = 1.0
"""How often a writer looks for a new seal."""
AFTER_PROBLEM_S: Final = 30.0
RECORDS_AT_ONCE: Final = 16
"""How many are in memory; each has at most what the engine stores in one record."""

SERVICE: Final = "archive"
"""What attention and `antiphon doctor` call this."""
REMEDY: Final = "until that is mended, nothing is purged and the log grows"

_log = LazyLogger(__name__)


class ArchiveWriter:
    """Keeps one archive up to date with its full node's seals."""

    def __init__(
        self, node: FullNode, keyring: Keyring, store: FileStore, *, round_s: float = ROUND_S
    ) -> None:
        """Nobody else may write there meanwhile."""
        self.node = node
        self.store = store
        self._keyring = keyring
        self._round_s = round_s
        self.size = 0
        """How many records are in the archive, as far as this writer knows."""
        self.guard = ItemGuard[str](SERVICE, node.session, node.replica.attention)
        self._is_clean = self._is_told = False
        self._orders = ArchiveOrders(node.replica, store)
        self._notes: dict[int, Erased] = {}
        """Records that are written without their bytes in this round."""

    async def run(self) -> None:
        """Archive until cancelled."""
        self.guard.begin()
        seen = tries = 0
        while True:
            await self.node.ready.wait()
            if self.node.seals.upto == seen:
                await asyncio.sleep(self._round_s)
                continue
            seen = self.node.seals.upto
            try:
                await self.look()
            except (AntiphonError, OSError) as problem:
                _log.warning("archive_waits", archive=str(self.store), problem=str(problem))
                seen, tries = 0, tries + 1
                self.guard.tell(f"{_reason_of(problem)}; {REMEDY}", problem, tries)
                await asyncio.sleep(AFTER_PROBLEM_S)
            else:
                tries = 0
                self.guard.recovered()

    async def look(self) -> bool:
        """One round; whether the archive has more than before."""
        seal = await self._newest_own_seal()
        if seal is None:
            return False
        async with self.store.locked():
            done = await self._begin()
            await self._orders.erase(done)
            return await self._write_upto(seal, done)

    async def _write_upto(self, seal: FoundSeal, done: int) -> bool:
        size, self.size = seal.body.size, done
        if size <= done:
            return False
        self._notes = self._orders.notes(self.node.replica.tree.seq_at(done), seal.body.upto)
        session = self.node.session
        said = Checkpoint(session.mesh, size, bytes.fromhex(seal.body.root))
        with closing(PlaceIndex()) as index:
            back = ArchiveReadBack(self.store, said, seal, index=index, protocol=session.protocol)
            for tile in _tiles_between(0, done, size):
                if not await self._has_records(tile, back):
                    await self._write_records(tile, done, back)
            for level in tiles.levels(size)[1:]:
                for tile in _tiles_between(level, done, size):
                    data = await self._hashes(tile, done)
                    await self.store.write(tile.path, data)
                    await back.tile(tile, data)
            await back.root()
            await self._sign(said, seal, back)
        self.size = size
        await self._clean_up(done, size)
        _log.info("archived", archive=str(self.store), upto=seal.body.upto, records=size)
        return True

    async def _newest_own_seal(self) -> FoundSeal | None:
        """What can be archived now: the newest seal, if this node's key made it."""
        if not self.node.replica.tree.is_kept:
            return None
        seal = await ReplicaSource(self.node.replica).newest_seal()
        if seal is not None and seal.op.author != self._keyring.did:
            if not self._is_told:
                _log.warning("archive_needs_coordinator", coordinator=seal.op.author)
            self._is_told = True
            return None
        return seal

    async def _begin(self) -> int:
        """How many records an earlier writer has archived; `Corrupt` if they are not these."""
        data, tree = await self.store.read(CHECKPOINT), self.node.replica.tree
        if data is None:
            return 0
        found, _ = checkpoints.read(data)
        size = tree.size_at(self.node.replica.cursor.seq)
        if found.mesh != self.node.session.mesh:
            raise Corrupt(f"{self.store} is the archive of another mesh, {found.mesh}")
        if found.size > size or tree.root_at(found.size) != found.root:
            raise Corrupt(
                f"{self.store} has another history than this machine's replica",
                hint=f"antiphon doctor --against {self.store} says where they part",
            )
        if not self._is_clean:  # an earlier writer may have been killed before it cleaned up
            await self._clean_up(0, found.size)
            last = tiles.tile_of(0, found.size - 1, found.size)
            await remove_others(self.store, self._record_path(last), larger=False)
            self._is_clean = True
        return found.size

    async def _write_records(self, tile: Tile, done: int, back: ArchiveReadBack) -> None:
        """The records of a tile, their entries, and at last the tile."""
        erased: Mapping[int, Body] = await self._erased_before(tile, done)
        leaves, gone = list[bytes](), list[Erased | None]()
        if tile.first < self.node.replica.tree.base:
            leaves, erased = await self._written_before(tile, done)
        path = self._record_path(tile)
        await self.store.write_parts(path, self._packed(tile, leaves, erased, gone))
        hashes = list(map(leaf_hash, leaves))
        await self.store.write(tile._replace(level=ENTRIES).path, entries.joined(leaves))
        await self.store.write(tile.path, b"".join(hashes))
        await back.bundle(tile, hashes, gone)

    def _record_path(self, tile: Tile) -> str:
        return record_files.path_of(*self._ends(tile))

    def _ends(self, tile: Tile) -> tuple[int, int]:
        """The first and the last sequence of a tile."""
        seq_at = self.node.replica.tree.seq_at
        return seq_at(tile.first), seq_at(tile.first + tile.width - 1)

    def _is_noted(self, tile: Tile) -> bool:
        """Whether a tile has records without bytes: a killed writer's may still have them."""
        first, last = self._ends(tile)
        return any(first <= seq <= last for seq in self._notes)

    async def _has_records(self, tile: Tile, back: ArchiveReadBack) -> bool:
        """Whether a writer that was killed had finished this tile."""
        has, tree = self.store.has, self.node.replica.tree
        if not tile.is_full or tile.first < tree.base or self._is_noted(tile):
            return False
        if not await has(tile.path) or not await has(self._record_path(tile)):
            return False
        hashes = [tree.subtree(0, tile.first + at) for at in range(tile.width)]
        return await back.is_whole(tile, hashes)

    async def _erased_before(self, tile: Tile, done: int) -> dict[int, Erased]:
        """What was erased in the smaller file of this tile: it stays erased."""
        if not tile.first < done < tile.first + tile.width:
            return {}
        path = self._record_path(tile._replace(width=done - tile.first))
        found = await read_bodies(self.store, path)
        return {at: body for at, body in enumerate(found) if isinstance(body, Erased)}

    async def _written_before(self, tile: Tile, done: int) -> tuple[list[bytes], dict[int, Body]]:
        """The leaves and bodies of a tile that the archive has, and this replica perhaps not.

        It began with a snapshot: what comes before is in the archive, or nowhere.
        """
        before = tile._replace(level=ENTRIES, width=max(0, done - tile.first))
        data = await self.store.read(before.path) if before.width else None
        if data is None:
            return [], {}
        path = self._record_path(before)
        unpacker, found = Unpacker(path), list[Body]()
        async with aclosing(self.store.parts(path)) as parts:
            async for part in parts:
                found += unpacker.add(part)
        unpacker.end()
        if len(found) != before.width:
            raise Corrupt(f"{path} does not have the {before.width} records of its entries")
        return entries.split(data, before), dict(enumerate(found))

    async def _packed(
        self,
        tile: Tile,
        leaves: list[bytes],
        erased: Mapping[int, Body],
        gone: list[Erased | None],
    ) -> AsyncGenerator[bytes]:
        """A record file in parts; fills in on the way what was erased, and leaves not known yet."""
        packer, known = Packer(), len(leaves)
        for first in range(0, tile.width, RECORDS_AT_ONCE):
            end = min(first + RECORDS_AT_ONCE, tile.width)
            fresh = min(max(first, known), end)
            bodies: list[Body] = [erased[at] for at in range(first, fresh)]
            if fresh < end:
                rows = self.node.replica.tree.rows(tile.first + fresh, end - fresh)
                leaves += map(leaf_of_row, rows)
                bodies += [
                    erased.get(at) or self._notes.get(row[0]) or body_of(row)
                    for at, row in enumerate(rows, fresh)
                ]
            gone += (body if isinstance(body, Erased) else None for body in bodies)
            yield await asyncio.to_thread(packer.add, bodies)
        yield packer.end()

    async def _hashes(self, tile: Tile, done: int) -> bytes:
        level, tree, known = tile.level * HEIGHT, self.node.replica.tree, b""
        before = tiles.last_tile(tile.level, done)
        is_grown = before is not None and before.number == tile.number
        if before is not None and is_grown and tile.first << level < tree.base:
            known = await self.store.read(before.path) or b""
        rest = range(len(known) // HASH_BYTES, tile.width)
        return known + b"".join(tree.subtree(level, tile.first + at) for at in rest)

    async def _sign(self, said: Checkpoint, seal: FoundSeal, back: ArchiveReadBack) -> None:
        """The seal, the key, and the checkpoint: the former one stays if this cannot be read."""
        key = NoteKey(said.origin, self._keyring.did)
        await self.store.write(SEAL, seal.payload)
        await read_back_stored(f"the seal of {self.store}", seal.payload, self.store.read, SEAL)
        await self.store.write(VKEY, f"{key.vkey}\n".encode())
        await read_back_stored(f"the key of {self.store}", key, signer_of, self.store)
        data = checkpoints.signed(said, key.did, self._keyring.sign_checkpoint(said))
        back.checkpoint(data, key)
        former = await self.store.read(CHECKPOINT)
        await self.store.write(CHECKPOINT, data)
        try:
            await read_back_stored(str(self.store), (said, True), opened, self.store, key)
        except Unreadable:
            if former is None:
                await self.store.remove(CHECKPOINT)
            else:
                await self.store.write(CHECKPOINT, former)
            raise

    async def _clean_up(self, done: int, size: int) -> None:
        """Remove partial files whose full ones are there, and record files that are part of others.

        No partial record file stays beside a larger one: what is erased there must be gone.
        """
        partial = tiles.last_tile(0, done)
        if partial is not None:
            await self.store.remove(self._record_path(partial))
        for level in (ENTRIES, *tiles.levels(size)):
            full = (size >> (HEIGHT * max(level, 0))) >> HEIGHT
            before = tiles.last_tile(level, done)
            grown = {full - 1} if before is None else {full - 1, before.number}
            for number in grown:
                if 0 <= number < full:
                    await self.store.remove(f"{Tile(level, number).path}.p")


def _reason_of(problem: AntiphonError | OSError) -> str:
    return problem.message if isinstance(problem, AntiphonError) else str(problem)


def body_of(row: Row) -> Body:
    """What a replica has of a record, as an archive keeps it."""
    payload = row[4]
    return Erased(by=payload.by, at_ms=payload.at_ms) if isinstance(payload, Gone) else payload


def _tiles_between(level: int, done: int, size: int) -> list[Tile]:
    """The tiles of a level that the tree has at this size, and not yet when it was smaller."""
    first = (done >> (HEIGHT * level)) >> HEIGHT
    count = size >> (HEIGHT * level)
    last = (count - 1) >> HEIGHT
    return [
        Tile(level, number, min(tiles.WIDTH, count - (number << HEIGHT)))
        for number in range(first, last + 1)
    ]
