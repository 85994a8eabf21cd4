"""Trees as RFC 6962 has them, against its definition and its published example."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.proof.merkle import (
    EMPTY_ROOT,
    Frontier,
    inclusion,
    leaf_hash,
    node_hash,
    root_from_inclusion,
)

# The inputs and roots that implementations of RFC 6962 test one another with.
KNOWN_LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
KNOWN_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def definition(leaves: list[bytes]) -> bytes:
    """The tree's hash, word for word as the RFC defines it."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return sha256(b"\x01" + definition(leaves[:k]) + definition(leaves[k:])).digest()


class Grown:
    """A tree with all its full subtrees at hand."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.leaves = leaves
        self.full: dict[tuple[int, int], bytes] = {}
        self.frontier = Frontier()
        for leaf in leaves:
            self.frontier.append(
                leaf, lambda level, index, h: self.full.update({(level, index): h})
            )

    def look_up(self, level: int, index: int) -> bytes:
        return self.full[level, index]


@pytest.mark.parametrize("size", range(1, 9))
def test_the_published_roots(size):
    assert Grown(KNOWN_LEAVES[:size]).frontier.root().hex() == KNOWN_ROOTS[size - 1]


def test_nothing_has_a_root_too():
    assert Frontier().root() == EMPTY_ROOT == definition([])


some_leaves = st.lists(st.binary(max_size=8), min_size=1, max_size=70)


@given(some_leaves)
def test_growing_gives_what_the_definition_gives(leaves):
    assert Grown(leaves).frontier.root() == definition(leaves)


@given(some_leaves, st.data())
def test_a_frontier_goes_on_where_it_was_laid_down(leaves, data):
    cut = data.draw(st.integers(0, len(leaves)))
    first = Grown(leaves[:cut]).frontier
    again = Frontier(first.size, first._full)
    for leaf in leaves[cut:]:
        again.append(leaf)
    assert again.root() == definition(leaves)


@given(some_leaves, st.data())
def test_every_leaf_of_every_earlier_tree_can_be_shown(leaves, data):
    tree = Grown(leaves)
    size = data.draw(st.integers(1, len(leaves)))
    index = data.draw(st.integers(0, size - 1))
    path = inclusion(index, size, tree.look_up)
    shown = root_from_inclusion(index, size, leaf_hash(leaves[index]), path)
    assert shown == definition(leaves[:size])


@given(some_leaves, st.data())
def test_a_path_shows_nothing_else(leaves, data):
    tree = Grown(leaves)
    size, root = len(leaves), tree.frontier.root()
    index = data.draw(st.integers(0, size - 1))
    path = inclusion(index, size, tree.look_up)
    leaf = leaf_hash(leaves[index])
    other = data.draw(st.binary(max_size=8).filter(lambda b: b != leaves[index]))
    assert root_from_inclusion(index, size, leaf_hash(other), path) != root
    if path:
        at = data.draw(st.integers(0, len(path) - 1))
        bent = [*path[:at], bytes(32), *path[at + 1 :]]
        assert root_from_inclusion(index, size, leaf, bent) != root
        assert root_from_inclusion(index, size, leaf, path[:-1]) != root
        assert root_from_inclusion(index, size, leaf, [*path, path[-1]]) != root


def test_a_node_is_no_leaf():
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert node_hash(left, right) != leaf_hash(left + right)


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="do not make"):
        Frontier(3, [bytes(32)])
    with pytest.raises(ValueError, match="do not make"):
        Frontier(1, [b"short"])
    with pytest.raises(ValueError, match="not in a tree"):
        inclusion(3, 3, lambda *_: b"")
