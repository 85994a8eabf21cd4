"""Merkle trees over the log, as in RFC 6962: SHA-256, with prefixes for leaves and inner nodes.

A tree of n leaves splits at the largest power of two below n, so every subtree of 2**k leaves that
begins at a multiple of 2**k is final once it is full. `Frontier` keeps the full subtrees of the
current tree: enough to append and to compute the root, in a few hundred bytes whatever n is. Proofs
need older subtrees; the code that makes them looks them up by (level, index).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()
MAX_PROOF: Final = 64

FullSubtree = Callable[[int, int], bytes]
"""Returns the hash of the index-th full subtree with 2**level leaves."""
Noted = Callable[[int, int, bytes], None]


def leaf_hash(leaf: bytes) -> bytes:
    """The hash of one leaf."""
    return sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """A growing tree: its size and its full subtrees, largest first."""

    __slots__ = ("_full", "size")

    def __init__(self, size: int = 0, full: Sequence[bytes] = ()) -> None:
        """Empty, or an earlier one from its full subtrees, largest first."""
        if size < 0 or len(full) != size.bit_count() or any(len(h) != HASH_BYTES for h in full):
            raise ValueError(f"{len(full)} hashes do not make a tree of {size} leaves")
        self.size = size
        self._full = list(full)

    def append(self, leaf: bytes, note: Noted | None = None) -> None:
        """Add a leaf; `note` is called for each subtree that it fills, the leaf first."""
        self.append_hash(leaf_hash(leaf), note)

    def append_hash(self, hashed: bytes, note: Noted | None = None) -> None:
        """The same for a leaf whose hash is known."""
        level, index = 0, self.size
        if note is not None:
            note(0, index, hashed)
        while index & 1:
            hashed = node_hash(self._full.pop(), hashed)
            level, index = level + 1, index >> 1
            if note is not None:
                note(level, index, hashed)
        self._full.append(hashed)
        self.size += 1

    def root(self) -> bytes:
        """The root over everything so far."""
        if not self._full:
            return EMPTY_ROOT
        hashed = self._full[-1]
        for left in reversed(self._full[:-1]):
            hashed = node_hash(left, hashed)
        return hashed


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def _range_hash(start: int, end: int, full: FullSubtree) -> bytes:
    """The hash of leaves [start, end), where start is a multiple of the split of its size."""
    size = end - start
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return full(level, start >> level)
    middle = start + _split(size)
    return node_hash(_range_hash(start, middle, full), _range_hash(middle, end, full))


def root_of(size: int, full: FullSubtree) -> bytes:
    """The root over the first `size` leaves."""
    return _range_hash(0, size, full) if size else EMPTY_ROOT


def inclusion(index: int, size: int, full: FullSubtree) -> list[bytes]:
    """The path from leaf `index` to the root of the first `size` leaves."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    start, end = 0, size
    turns: list[tuple[int, int]] = []
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            turns.append((middle, end))
            end = middle
        else:
            turns.append((start, middle))
            start = middle
    return [_range_hash(a, b, full) for a, b in reversed(turns)]


def root_from_inclusion(index: int, size: int, leaf: bytes, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to from a leaf's hash; None if the path does not fit."""
    if not 0 <= index < size or len(path) > MAX_PROOF:
        return None
    at, last, hashed = index, size - 1, leaf
    for sibling in path:
        if last == 0 or len(sibling) != HASH_BYTES:
            return None
        if at & 1 or at == last:
            hashed = node_hash(sibling, hashed)
            while not at & 1 and at != 0:
                at, last = at >> 1, last >> 1
        else:
            hashed = node_hash(hashed, sibling)
        at, last = at >> 1, last >> 1
    return hashed if last == 0 else None


def consistency(old: int, new: int, full: FullSubtree) -> list[bytes]:
    """What shows that the first `old` leaves are the same in the tree of `new` leaves.

    As in RFC 6962; none is needed where the old tree is empty or the same one.
    """
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {old} leaves is not within one of {new}")
    start, end, is_known = 0, new, True
    path: list[bytes] = []
    while old and end > old:
        middle = start + _split(end - start)
        if old <= middle:
            path.append(_range_hash(middle, end, full))
            end = middle
        else:
            path.append(_range_hash(start, middle, full))
            start, is_known = middle, False
    if not is_known:
        path.append(_range_hash(start, end, full))
    return path[::-1]


def is_consistent(
    old: int, old_root: bytes, new: int, new_root: bytes, path: Sequence[bytes]
) -> bool:
    """Whether a proof shows that the old tree is the beginning of the new one."""
    if not 0 <= old <= new or len(path) > 2 * MAX_PROOF:
        return False
    if old in (0, new):
        return not path and old_root == (new_root if old else EMPTY_ROOT)
    hashes = [old_root, *path] if old & (old - 1) == 0 else list(path)
    if not hashes or any(len(one) != HASH_BYTES for one in hashes):
        return False
    at, last = old - 1, new - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    before = after = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if at & 1 or at == last:
            before, after = node_hash(sibling, before), node_hash(sibling, after)
            while not at & 1 and at != 0:
                at, last = at >> 1, last >> 1
        else:
            after = node_hash(after, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and before == old_root and after == new_root
