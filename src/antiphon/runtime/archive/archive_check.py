"""Checks a whole archive, with nothing but its files: in one pass, with little memory.

Every entry is hashed into every tile and the root; every record hashes to its entry; the control
records lead from genesis to the coordinator that sealed the root and signed the checkpoint. What
is not done is to judge all other records again: the bundle of a job does that for its lane.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.archive.checkpoint import VKEY
from antiphon.core.archive.record_files import Body, Erased
from antiphon.core.archive.signed_note import NoteKey
from antiphon.core.archive.tiles import ENTRIES, HEIGHT, WIDTH, Tile, tile_of, tiles_at
from antiphon.core.families.mesh.ops import MeshGenesis
from antiphon.core.families.seals.state import Leaf
from antiphon.core.history.control_history import ControlHistory
from antiphon.core.opened_record import open_record
from antiphon.core.proof.merkle import Frontier, leaf_hash
from antiphon.core.record import signing
from antiphon.core.record.branches import CONTROL
from antiphon.core.record.ids import digest, mesh_id
from antiphon.errors import Corrupt, Malformed

if TYPE_CHECKING:
    from antiphon.runtime.archive.archive_reader import ArchiveReader
    from antiphon.runtime.file_store import FileStore

Progress = Callable[[int, int], None]
"""Called with how many records were checked, and how many there are."""


class ArchiveReport(Struct, frozen=True, kw_only=True):
    """What an archive that is whole proves."""

    mesh: str
    owner: str
    coordinator: str
    records: int
    erased: int
    upto: int
    root: str


async def check_archive(
    archive: ArchiveReader, *, told: Progress = lambda *_: None
) -> ArchiveReport:
    """Check everything; `Corrupt` says which file is wrong."""
    checked = _Check(archive)
    for number in range((archive.size + WIDTH - 1) >> HEIGHT):
        await checked.bundle(number)
        told(checked.tree.size, archive.size)
    await checked.upper_tiles()
    return await checked.signatures()


async def hashes_of(archive: ArchiveReader, number: int) -> list[bytes]:
    """The hashes of a bundle's entries; `Corrupt` unless its tile has the same."""
    tile = tile_of(ENTRIES, number << HEIGHT, archive.size)
    hashes = [leaf_hash(one) for one in await archive.entries(tile)]
    level_0 = tile._replace(level=0)
    if await archive.tile(level_0) != b"".join(hashes):
        raise Corrupt(f"{level_0.path} and {tile.path} do not agree")
    return hashes


async def records_of(archive: ArchiveReader, number: int) -> AsyncGenerator[tuple[Leaf, Body]]:
    """The records of a bundle, and what its entries say of them; `Corrupt` unless they agree."""
    at, end = number << HEIGHT, min((number + 1) << HEIGHT, archive.size)
    async with aclosing(archive.bodies(number)) as bodies:
        async for body in bodies:
            if at == end:
                raise Corrupt(f"the record file of bundle {number} has more records than entries")
            leaf = await archive.leaf_at(at)
            if not isinstance(body, Erased) and digest(body) != leaf.digest:
                raise Corrupt(f"record {leaf.seq} is not what its entry says")
            yield leaf, body
            at += 1
    if at != end:
        raise Corrupt(f"the record file of bundle {number} lacks records")


async def signer_of(store: FileStore) -> NoteKey:
    """The key that an archive says it is signed with; `Corrupt` if it says none."""
    data = await store.read(VKEY) or b""
    try:
        key = NoteKey.of_vkey(data.decode().removesuffix("\n"))
    except (Malformed, UnicodeDecodeError) as problem:
        raise Corrupt("vkey is not a key") from problem
    if data != f"{key.vkey}\n".encode():
        raise Corrupt("vkey is not one line with a key")
    return key


class _Check:
    def __init__(self, archive: ArchiveReader) -> None:
        self.archive = archive
        self.tree = Frontier()
        self.history = ControlHistory(archive.protocol, archive.mesh)
        self.owner = ""
        self.erased = 0
        self._last = 0
        self._open: dict[int, list[bytes]] = {}
        """The hashes of the tiles above level 0 that are not compared yet, by level."""
        self._full: list[Tile] = []

    async def bundle(self, number: int) -> None:
        """One bundle of entries, its tile and its record file."""
        for hashed in await hashes_of(self.archive, number):
            self.tree.append_hash(hashed, self._noted)
        await self._compare_full()
        await self._records(number)

    def _noted(self, level: int, place: int, hashed: bytes) -> None:
        above, rest = divmod(level, HEIGHT)
        if above and not rest:
            row = self._open.setdefault(above, [])
            row.append(hashed)
            if len(row) == WIDTH:
                self._full.append(Tile(above, place >> HEIGHT))

    async def _compare_full(self) -> None:
        while self._full:
            tile = self._full.pop(0)
            await self._compare(tile, self._open.pop(tile.level))

    async def upper_tiles(self) -> None:
        """The partial tiles at the end of each level above 0."""
        for level, row in self._open.items():
            *_, tile = tiles_at(level, self.archive.size)
            await self._compare(tile, row)

    async def _compare(self, tile: Tile, row: list[bytes]) -> None:
        if await self.archive.tile(tile) != b"".join(row):
            raise Corrupt(f"{tile.path} is not what the tiles below it give")

    async def _records(self, number: int) -> None:
        async with aclosing(records_of(self.archive, number)) as records:
            async for leaf, body in records:
                if leaf.seq <= self._last:
                    raise Corrupt(f"the entries of bundle {number} are not in the log's order")
                self._last = leaf.seq
                if isinstance(body, Erased):
                    self.erased += 1
                else:
                    self._control(leaf, body)

    def _control(self, leaf: Leaf, body: bytes) -> None:
        """Follow the control records, whose verdicts say who the coordinator is."""
        protocol, mesh = self.archive.protocol, self.archive.mesh
        place = protocol.place_of(leaf.subject)
        if place is None or place.key.family != CONTROL:
            return
        at = (leaf.seq, leaf.commit_ms, leaf.subject)
        opened = open_record(protocol, mesh, *at, body)
        if self.history.apply(opened) is not leaf.verdict:
            raise Corrupt(f"control record {leaf.seq} has another verdict than its entry says")
        if isinstance(opened.op, MeshGenesis) and not self.owner:
            if mesh_id(signing.unframe(body)[0]) != mesh:
                raise Corrupt("its genesis created another mesh than its checkpoint names")
            self.owner = opened.op.body.owner

    async def signatures(self) -> ArchiveReport:
        """Who sealed this root, and who signed the checkpoint."""
        archive = self.archive
        seal = await archive.newest_seal()
        if seal is None:
            raise Corrupt("there is no seal")
        body, root = seal.body, self.tree.root()
        if body.root != root.hex() or self._last > body.upto:
            raise Corrupt("the seal is not of these records")
        control = self.history.at(body.upto + 1, seal.op.hlc[0])
        if control is None or control.coordinator != seal.op.author or not self.owner:
            raise Corrupt("the seal is not by the coordinator that the control records name")
        said = archive.checkpoint
        at_checkpoint = root if said.size == body.size else await archive.root_at(said.size)
        if said.root != at_checkpoint:
            raise Corrupt("the checkpoint is not of these records")
        key = NoteKey(said.origin, seal.op.author)
        if not archive.note.is_signed_by(key):
            raise Corrupt("the checkpoint is not signed by the coordinator")
        if await signer_of(archive.store) != key:
            raise Corrupt("vkey is not the coordinator's key")
        return ArchiveReport(
            mesh=archive.mesh,
            owner=self.owner,
            coordinator=seal.op.author,
            records=self.tree.size,
            erased=self.erased,
            upto=body.upto,
            root=body.root,
        )
