"""Ops that are not committed yet (spec §5)."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.tentative_order import Tentative, rank
from tests.core.authors import ALICE, BOB
from tests.core.strategies import THOROUGH


def ids(ops):
    return [op.op_id for op in ops]


@pytest.mark.req("M10", "G8")
def test_the_smaller_timestamp_wins_in_whatever_order_they_were_heard():
    first = Tentative("x", BOB.did, (10, 0))
    second = Tentative("a", ALICE.did, (10, 1))
    third = Tentative("b", ALICE.did, (11, 0))
    for order in permutations([first, second, third]):
        assert rank(order).ordered == (first, second, third)


@pytest.mark.req("M10", "G8")
def test_a_tie_goes_to_the_lower_node_id():
    low, high = sorted([ALICE.did, BOB.did])
    ranking = rank([Tentative("a", high, (10, 0)), Tentative("b", low, (10, 0))])
    assert ids(ranking.ordered) == ["b", "a"]
    assert ranking.equivocal == ()


@pytest.mark.req("M11")
def test_two_ops_by_one_author_with_one_timestamp_are_both_dropped():
    pair = [Tentative("a", ALICE.did, (10, 0)), Tentative("b", ALICE.did, (10, 0))]
    bystander = Tentative("c", BOB.did, (10, 0))
    for order in permutations([*pair, bystander]):
        ranking = rank(order)
        assert ranking.ordered == (bystander,)
        assert ids(ranking.equivocal) == ["a", "b"]


@pytest.mark.req("M11")
def test_the_same_op_heard_twice_is_no_equivocation():
    op = Tentative("a", ALICE.did, (10, 0))
    ranking = rank([op, op])
    assert ranking.ordered == (op,)
    assert ranking.equivocal == ()


tentative = st.builds(
    Tentative,
    st.sampled_from("abcdefghij"),
    st.sampled_from([ALICE.did, BOB.did]),
    st.tuples(st.integers(0, 2), st.integers(0, 1)),
)


@THOROUGH
@given(st.lists(tentative, max_size=10, unique_by=lambda op: op.op_id), st.randoms())
def test_every_op_is_ranked_or_dropped_and_the_order_of_hearing_never_shows(heard, chance):
    ranking = rank(heard)
    shuffled = list(heard)
    chance.shuffle(shuffled)
    assert rank(shuffled) == ranking
    assert sorted(ids(ranking.ordered + ranking.equivocal)) == sorted(ids(heard))
    keys = [(op.hlc, op.author) for op in ranking.ordered]
    assert keys == sorted(set(keys))
    assert not set(keys) & {(op.hlc, op.author) for op in ranking.equivocal}
