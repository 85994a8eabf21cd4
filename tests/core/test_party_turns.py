"""Turns by party: which rows a list has that is too short for everybody's."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.party_turns import in_turns, shared

PARTIES = st.lists(st.integers(0, 40), max_size=12)
"""How many rows each party has."""


@given(PARTIES, st.integers(0, 60))
def test_nothing_is_lost_or_twice_and_every_party_is_within_the_first_turns(counts, limit):
    rows = [[(party, row) for row in range(many)] for party, many in enumerate(counts)]
    found = in_turns(rows, limit)
    assert len(found) == min(limit, sum(counts))
    assert len(set(found)) == len(found)
    had = [[row for party, row in found if party == one] for one in range(len(counts))]
    for one, many in enumerate(counts):
        assert had[one] == list(range(len(had[one]))), "each party's in its own order"
        if len(had[one]) < many:  # it waits for a turn: nobody has had two more
            assert all(len(other) <= len(had[one]) + 1 for other in had)
    everybody = sum(many > 0 for many in counts)
    assert {party for party, _ in found[:everybody]} == {
        party for party, many in enumerate(counts) if many
    } or limit < everybody


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(0, 30))
def test_what_is_shown_is_in_the_order_of_the_list(parties, limit):
    rows = list(enumerate(parties))
    found = shared(rows, lambda row: row[1], limit)
    assert found == sorted(found)
    assert len(found) == min(limit, len(rows))
    first = {row[1]: row for row in reversed(rows)}
    if limit >= len(first):
        assert set(first.values()) <= set(found)


def test_no_more_is_read_of_a_party_than_it_has_turns():
    endless = count()
    assert in_turns([endless, iter("ab"), iter("c")], 6) == [0, "a", "c", 1, "b", 2]
    assert next(endless) == 3
