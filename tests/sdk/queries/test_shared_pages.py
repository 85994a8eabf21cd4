"""Pages that parties share: a cursor says how far each was shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import Malformed
from antiphon.sdk.queries.page import MOST_CHARACTERS, OPEN, Query, digest_key

QUERY = Query("rows")
ROWS = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 8)), max_size=120, unique=True)
"""Party and time."""


def key(row):
    party, at = row
    return digest_key(f"{party}", at.to_bytes(6))


def a_page(rows, limit, after=""):
    page = QUERY.in_turns(rows, key, lambda row: f"party {row[0]}", after=after, limit=limit)
    assert len(page) <= limit
    assert [*page] == sorted(page, key=key), "in the order of the list"
    assert len(page.next) <= MOST_CHARACTERS
    return page


@given(ROWS, st.integers(1, 30), st.data())
def test_each_row_that_stays_is_shown_once_whatever_else_goes_meanwhile(rows, limit, data):
    left, found, gone, after = list(rows), [], set(), ""
    while True:
        page = a_page(left, limit, after)
        found += page
        after = page.next
        if not after:
            break
        if left and data.draw(st.booleans()):
            gone.add(left.pop(data.draw(st.integers(0, len(left) - 1))))
    assert len(found) == len(set(found))
    assert set(rows) - gone <= set(found) <= set(rows)


@given(ROWS, st.integers(1, 60))
def test_every_party_is_on_the_first_page_if_there_is_room_for_one_row_of_each(rows, limit):
    page = a_page(rows, limit)
    parties = {party for party, _ in rows}
    if len(parties) <= min(limit, OPEN):
        assert {party for party, _ in page} == parties
    first = {}
    for party, at in sorted(rows, key=lambda row: row[1]):
        first.setdefault(party, at)
    assert all((party, first[party]) in page for party, _ in page), "each begins with its first"


def test_ten_thousand_rows_of_one_party_leave_the_row_of_another_where_it_is():
    rows = [(0, at) for at in range(10_000)] + [(1, 9_999)]
    page = a_page(rows, 2)
    assert [*page] == [(0, 0), (1, 9_999)]
    assert [*a_page(rows, 2, page.next)] == [(0, 1), (0, 2)]


def test_more_parties_than_a_cursor_names_are_all_shown_in_the_end():
    rows = [(party, at) for party in range(3 * OPEN) for at in range(3)]
    found, after = [], ""
    while page := a_page(rows, OPEN, after):
        found += page
        after = page.next
        if not after:
            break
    assert sorted(found) == rows


@pytest.mark.parametrize("place", [7, "text", [], [b"x", b"", b"y" * 400]])
def test_what_is_no_such_cursor_shows_nothing_else(place):
    rows, cursor = [(0, 1), (1, 2)], QUERY.cursor(place)
    if place in (7, "text", []):
        with pytest.raises(Malformed, match="not a cursor"):
            a_page(rows, 5, cursor)
    else:
        assert set(a_page(rows, 5, cursor)) <= set(rows)
