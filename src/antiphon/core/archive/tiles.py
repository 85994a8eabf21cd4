"""Tiles (C2SP tlog-tiles): a Merkle tree as files of 256 hashes, and proofs from them.

Tile N of level L has the hashes of the full subtrees with 256**L leaves from the (256*N)-th on. A
full tile never changes. The last of each level may be partial, and has its width in its path. The
hashes between two levels of tiles are computed when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.proof.merkle import HASH_BYTES, FullSubtree, node_hash
from antiphon.errors import Corrupt

HEIGHT: Final = 8
WIDTH: Final = 1 << HEIGHT
"""Hashes of a full tile, and entries of a full bundle."""
TILE_BYTES: Final = WIDTH * HASH_BYTES
TILES_KEPT: Final = 64
"""Tiles that a reader has in memory: half a megabyte."""
_DIGITS: Final = 1000


class Tile(NamedTuple):
    """One tile of a tree, or with level -1 the bundle of the entries below a tile of level 0."""

    level: int
    number: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """Where it lies."""
        level = "entries" if self.level < 0 else str(self.level)
        return f"tile/{level}/{path_of(self.number)}{_partial(self.width)}"

    @property
    def first(self) -> int:
        """Its first hash or entry, counted within its level."""
        return self.number << HEIGHT

    @property
    def is_full(self) -> bool:
        """Whether it can no longer grow."""
        return self.width == WIDTH


ENTRIES: Final = -1
"""The level of bundles of entries."""

ReadTile = Callable[[Tile], bytes]
"""Fetches a tile; `Corrupt` if it is not there."""


def path_of(index: int) -> str:
    """A number as a path of three digits each, all but the last with an x."""
    last = f"{index % _DIGITS:03}"
    while index >= _DIGITS:
        index //= _DIGITS
        last = f"x{index % _DIGITS:03}/{last}"
    return last


def _partial(width: int) -> str:
    return "" if width == WIDTH else f".p/{width}"


def tiles_at(level: int, size: int) -> Iterator[Tile]:
    """The tiles of one level of a tree with this many leaves, the partial one last."""
    count = size >> (HEIGHT * max(level, 0))
    yield from (Tile(level, index) for index in range(count >> HEIGHT))
    if count % WIDTH:
        yield Tile(level, count >> HEIGHT, count % WIDTH)


def last_tile(level: int, size: int) -> Tile | None:
    """The partial tile of a level at this size; None if there is none."""
    count = size >> (HEIGHT * max(level, 0))
    return Tile(level, count >> HEIGHT, count % WIDTH) if count % WIDTH else None


def levels(size: int) -> range:
    """The levels of tiles that a tree of this size has."""
    return range((max(size.bit_length(), 1) - 1) // HEIGHT + 1 if size else 0)


def tile_of(level: int, at: int, size: int) -> Tile:
    """The tile at this size that has the `at`-th hash or entry of a level."""
    index = at >> HEIGHT
    count = size >> (HEIGHT * max(level, 0))
    return Tile(level, index, min(WIDTH, count - (index << HEIGHT)))


def split(data: bytes, tile: Tile) -> list[bytes]:
    """The hashes in a tile, or `Corrupt`."""
    if len(data) != tile.width * HASH_BYTES:
        raise Corrupt(f"{tile.path} has {len(data)} bytes, and should have {tile.width} hashes")
    return [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]


def root_of_full(hashes: Iterable[bytes]) -> bytes:
    """The hash of a full subtree, from those of one level below; their number is a power of two."""
    row = list(hashes)
    while len(row) > 1:
        row = [node_hash(row[at], row[at + 1]) for at in range(0, len(row), 2)]
    return row[0]


def full_subtrees(size: int, read: ReadTile) -> FullSubtree:
    """The hashes of a tree's full subtrees, from its tiles at this size."""
    kept = BoundedCache[Tile, list[bytes]](most=TILES_KEPT, most_bytes=TILES_KEPT * TILE_BYTES)

    def full(level: int, index: int) -> bytes:
        of_tiles, above = divmod(level, HEIGHT)
        first = index << above
        tile = tile_of(of_tiles, first, size)
        hashes = kept.get(tile)
        if hashes is None:
            hashes = split(read(tile), tile)
            kept.put(tile, hashes, len(hashes) * HASH_BYTES)
        at = first - tile.first
        return root_of_full(hashes[at : at + (1 << above)])

    return full
