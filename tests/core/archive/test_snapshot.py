"""A snapshot has the hashes of what it leaves out, and is read in one form only."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.archive import snapshot as snapshots
from antiphon.core.archive.snapshot import Head, left_out, made, ranges
from antiphon.core.proof.merkle import Frontier, leaf_hash, node_hash, root_of
from antiphon.errors import Malformed
from tests.examples import examples


def a_tree(size):
    """What gives the hash of a full subtree, and the root."""
    nodes, tree = {}, Frontier()
    for leaf in range(size):
        tree.append(
            b"%d" % leaf, lambda level, place, hashed: nodes.update({(level, place): hashed})
        )
    return nodes, tree.root()


def of(size, leaves):
    nodes, root = a_tree(size)
    head = Head(mesh="m", at=size, size=size, root=root.hex(), kept=ranges(sorted(leaves)))
    return made(head, lambda level, place: nodes[level, place])


sizes = st.integers(1, 70).flatmap(
    lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1)))
)


@given(sizes)
@settings(max_examples=examples(60))
def test_the_root_follows_from_the_leaves_that_count_and_the_hashes_of_the_rest(given_):
    size, leaves = given_
    found = snapshots.read(of(size, leaves).encoded())
    known = {(level, place): hashed for level, place, hashed in found.nodes()}
    known |= {(0, leaf): leaf_hash(b"%d" % leaf) for leaf in leaves}

    def full(level, place):
        if (level, place) in known:
            return known[level, place]
        return node_hash(full(level - 1, 2 * place), full(level - 1, 2 * place + 1))

    assert root_of(size, full).hex() == found.head.root
    assert {seq - 1 for seq in range(1, size + 1) if found.keeps(seq)} == leaves
    assert len(known) == len(leaves) + len(found.hashes) // 32, "no leaf is there twice"


def test_a_long_stretch_that_counts_for_nobody_takes_a_few_hashes():
    kept = ranges([*range(3), *range(1_000_000 - 50, 1_000_000)])
    assert len(list(left_out(1_000_000, kept))) < 60


def test_leaves_are_counted_without_the_sequences_that_never_were():
    head = replace(of(8, {0, 5}).head, at=12, gaps=((3, 1), (7, 4)))
    found = snapshots.Snapshot(head, b"")
    assert [seq for seq in (1, 2, 3, 4, 5, 10, 11) if found.keeps(seq)] == [1, 10]


def test_every_byte_counts():
    data = of(21, {3, 4, 20}).encoded()
    assert snapshots.read(data).encoded() == data
    hashes = len(data) - data.index(b"\n") - 1
    for at in range(len(data) - hashes):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            found = snapshots.read(changed)
        except Malformed:
            continue
        assert found.encoded() == changed, "what can be read is in its one form"
        assert found != snapshots.read(data)
    for torn in (data[:-1], data + b"x", data[:10], b"", data.replace(b'"at":21', b'"at":22')):
        with pytest.raises(Malformed):
            snapshots.read(torn)


@pytest.mark.parametrize(
    "fields",
    [
        {"kept": ((3, 2), (5, 1))},
        {"kept": ((3, 2), (4, 1))},
        {"kept": ((20, 2),)},
        {"gaps": ((5, 1), (5, 2)), "at": 23},
        {"gaps": ((30, 1),), "at": 22},
    ],
)
def test_ranges_and_gaps_ascend_and_end_with_the_snapshot(fields):
    head = replace(of(21, {3}).head, **fields)
    data = snapshots.Snapshot(head, b"\0" * 32 * sum(1 for _ in left_out(21, head.kept)))
    with pytest.raises(Malformed):
        snapshots.read(data.encoded())
