"""Bundles of entries (C2SP tlog-tiles): the leaves of a tree, each after its length in two bytes.

An entry is the leaf of a seal's tree as it was hashed, so a bundle is checked by hashing each of
its entries: they are the hashes of the tile of level 0 with the same number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from antiphon.core.archive.tiles import Tile
from antiphon.errors import Corrupt, Malformed

MAX_ENTRY_BYTES: Final = 0xFFFF
_LENGTH_BYTES: Final = 2


def joined(entries: Iterable[bytes]) -> bytes:
    """A bundle of these entries."""
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > MAX_ENTRY_BYTES:
            raise Malformed(f"an entry of {len(entry)} bytes is too long", reason="entry")
        parts += (len(entry).to_bytes(_LENGTH_BYTES, "big"), entry)
    return b"".join(parts)


def split(data: bytes, tile: Tile) -> list[bytes]:
    """The entries of a bundle, or `Corrupt`."""
    found: list[bytes] = []
    at = 0
    while at < len(data) and len(found) < tile.width:
        begin = at + _LENGTH_BYTES
        at = begin + int.from_bytes(data[at:begin], "big")
        found.append(data[begin:at])
    if at != len(data) or len(found) != tile.width:
        raise Corrupt(f"{tile.path} is not a bundle of {tile.width} entries")
    return found
