"""Tiles and bundles of entries: where they lie, what is in them, and proofs from them alone."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.archive import entries, tiles
from antiphon.core.archive.tiles import ENTRIES, Tile
from antiphon.core.families.seals.state import Leaf, leaf, read_leaf
from antiphon.core.proof import merkle
from antiphon.core.proof.merkle import EMPTY_ROOT, Frontier, is_consistent
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, Malformed

LEAVES = [b"leaf %d" % n for n in range(70_000)]
SIZES = (1, 2, 255, 256, 257, 511, 65_535, 65_536, 65_537, 70_000)


class Forest:
    """A grown tree, and its tiles at any size."""

    def __init__(self) -> None:
        self.full: dict[tuple[int, int], bytes] = {}
        self.roots: dict[int, bytes] = {}
        frontier = Frontier()
        for at, each in enumerate(LEAVES, start=1):
            frontier.append(each, lambda *found: self.full.update({found[:2]: found[2]}))
            if at in SIZES or at < 400:
                self.roots[at] = frontier.root()

    def tile(self, tile: Tile) -> bytes:
        level = tile.level * tiles.HEIGHT
        return b"".join(self.full[level, tile.first + at] for at in range(tile.width))


FOREST = Forest()


def test_paths_are_the_published_ones():
    assert Tile(0, 1_234_067).path == "tile/0/x001/x234/067"
    assert Tile(1, 0).path == "tile/1/000"
    assert Tile(2, 5, 7).path == "tile/2/005.p/7"
    assert Tile(ENTRIES, 1000, 255).path == "tile/entries/x001/000.p/255"


def test_a_tree_has_the_published_tiles():
    size = 70_000
    assert [len(list(tiles.tiles_at(level, size))) for level in tiles.levels(size)] == [274, 2, 1]
    assert tiles.last_tile(0, size) == Tile(0, 273, 112)
    assert tiles.last_tile(1, size) == Tile(1, 1, 17)
    assert tiles.last_tile(2, size) == Tile(2, 0, 1)
    assert list(tiles.levels(256)) == [0, 1]
    assert tiles.last_tile(0, 256) is None
    assert list(tiles.levels(0)) == []


@pytest.mark.parametrize("size", SIZES)
def test_the_root_follows_from_the_tiles_alone(size):
    assert merkle.root_of(size, tiles.full_subtrees(size, FOREST.tile)) == FOREST.roots[size]


@pytest.mark.parametrize("size", SIZES)
def test_every_proof_follows_from_the_tiles_alone(size):
    full = tiles.full_subtrees(size, FOREST.tile)
    for index in {0, size // 2, size - 1}:
        path = merkle.inclusion(index, size, full)
        hashed = merkle.leaf_hash(LEAVES[index])
        assert merkle.root_from_inclusion(index, size, hashed, path) == FOREST.roots[size]
    for old in SIZES:
        if old <= size:
            path = merkle.consistency(old, size, full)
            assert is_consistent(old, FOREST.roots[old], size, FOREST.roots[size], path)


@given(st.integers(0, 399), st.integers(0, 399), st.data())
def test_a_consistency_proof_shows_nothing_else(one, other, data):
    old, new = sorted((one, other))
    roots = {0: EMPTY_ROOT, **FOREST.roots}
    path = merkle.consistency(old, new, lambda *at: FOREST.full[at])
    assert is_consistent(old, roots[old], new, roots[new], path)
    assert not is_consistent(old, bytes(32), new, roots[new], path)
    assert not is_consistent(old, roots[old], new, bytes(32), path) or old == 0
    assert not is_consistent(old, roots[old], new, roots[new], [*path, bytes(32)])
    if path:
        at = data.draw(st.integers(0, len(path) - 1))
        bent = [*path[:at], bytes(32), *path[at + 1 :]]
        assert not is_consistent(old, roots[old], new, roots[new], bent)
        assert not is_consistent(old, roots[old], new, roots[new], path[:-1])
        assert not is_consistent(old + 1, roots[old], new, roots[new], path)


def test_a_tile_of_another_length_is_damaged():
    with pytest.raises(Corrupt, match="tile/0/000"):
        tiles.split(bytes(31), Tile(0, 0, 1))


def test_entries_are_read_as_they_were_joined():
    some = [b"", b"a", b"b" * entries.MAX_ENTRY_BYTES]
    assert entries.split(entries.joined(some), Tile(ENTRIES, 0, 3)) == some
    with pytest.raises(Malformed, match="too long"):
        entries.joined([b"c" * (entries.MAX_ENTRY_BYTES + 1)])


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=9), st.data())
def test_a_bundle_that_is_cut_or_longer_is_damaged(some, data):
    good, tile = entries.joined(some), Tile(ENTRIES, 0, len(some))
    cut = data.draw(st.integers(0, len(good) - 1))
    for bad in (good[:cut], good + b"\x00", good + b"\x00\x00"):
        with pytest.raises(Corrupt):
            entries.split(bad, tile)


A_LEAF = Leaf(7, 1_763_158_000_000, "ap.mesh.job.a.b", "blake3:" + "0" * 64, Verdict.OK, 0)


def test_a_leaf_is_read_as_it_was_hashed():
    data = leaf(*A_LEAF[:4], A_LEAF.verdict.value)
    assert data[:1] == b"\x01", "the version of its form"
    assert read_leaf(data) == A_LEAF


@given(st.data())
def test_another_form_is_no_leaf(data):
    good = leaf(*A_LEAF[:4], A_LEAF.verdict.value)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytes([*good[:at], good[at] ^ data.draw(st.integers(1, 255)), *good[at + 1 :]])
    with suppress(Malformed):
        assert leaf(*(found := read_leaf(bad))[:4], found.verdict.value, found.after) == bad
    with pytest.raises(Malformed):
        read_leaf(b"\x02" + good[1:])


def test_the_longest_subject_fits_into_an_entry():
    subject = "ap." + "\x01" * 4096
    assert len(leaf(2**53 - 1, 2**53 - 1, subject, A_LEAF.digest, "ok")) < entries.MAX_ENTRY_BYTES
