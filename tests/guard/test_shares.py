"""The law by which parties share: nobody takes more than is still free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.guard import shares
from antiphon.guard.shares import REMEMBERED_S, Shares, WorkShares

PARTIES = st.sampled_from("abcdefgh")


def filled(places: Shares, party: str) -> int:
    """Take as much as there is room for; how much that was."""
    count = 0
    while places.has_room(party, 1):
        places.take(party, 1)
        count += 1
    return count


def test_whoever_is_greedy_leaves_as_much_as_it_takes():
    places = Shares(32, 32)
    assert [filled(places, one) for one in "abcdef"] == [16, 8, 4, 2, 1, 1]
    assert not places.has_room("g", 1), "there is no more"


def test_what_a_greedy_party_gives_back_it_does_not_get_again_before_others():
    places = Shares(32, 32)
    for one in "abcdef":
        filled(places, one)
    places.give_back("a", 8)
    assert not places.has_room("a", 1), "it still has as much as is free"
    assert filled(places, "f") == 4
    assert filled(places, "g") == 2


def test_a_party_has_a_limit_of_its_own():
    places = Shares(100, 3)
    assert filled(places, "a") == 3
    assert not places.has_room("b", 98)
    assert places.has_room("b", 97), "one large thing, as long as it fits"


@given(st.lists(st.tuples(PARTIES, st.integers(1, 20), st.booleans()), max_size=60))
def test_never_more_is_taken_than_there_is_and_all_of_it_comes_back(steps):
    places, held = Shares(64, 40), []
    for party, amount, gives_back in steps:
        if gives_back and held:
            places.give_back(*held.pop())
        elif places.has_room(party, amount):
            places.take(party, amount)
            held.append((party, amount))
        assert sum(amount for _, amount in held) <= 64
        for one in "abcdefgh":
            mine = sum(amount for party, amount in held if party == one)
            assert places.held_by(one) == mine
    while held:
        places.give_back(*held.pop())
    assert filled(places, "a") == 32


# --- processor time -------------------------------------------------------------------------------


def long_run(
    parties: str, part: float, seconds: float = 60.0, answer_s: float = 0.01
) -> list[float]:
    """What part of a core each gets that asks without a pause, each for as long as it may."""
    work, now_s, used = WorkShares(part), 0.0, dict.fromkeys(parties, 0.0)
    while now_s < seconds:
        for party in parties:
            if not work.wait_s(party, now_s):
                work.note(party, answer_s, now_s)
                used[party] += answer_s
        now_s += answer_s
    return [used[one] / seconds for one in parties]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_those_who_ask_without_a_pause_share_evenly_and_leave_one_share(count):
    for got in long_run("abcd"[:count], part=0.5):
        assert got == pytest.approx(0.5 / (count + 1), rel=0.1)


def test_a_party_rests_in_proportion_to_what_its_last_answer_took():
    work = WorkShares(0.5)
    work.note("a", 0.5, 0.0)
    assert work.wait_s("a", 0.0) == 0.0, "that was its half of two seconds"
    work.note("a", 0.5, 0.0)
    short = work.wait_s("a", 0.0)
    work.note("a", 4.0, 0.0)
    assert 0 < short < work.wait_s("a", 0.0)
    wait_s = work.wait_s("a", 0.0)
    assert work.wait_s("a", wait_s / 2) == pytest.approx(wait_s / 2)
    assert work.wait_s("a", wait_s + 0.01) == 0.0


def test_what_one_party_used_too_much_is_not_missing_for_another():
    work = WorkShares(0.5)
    work.note("a", 1_000.0, 0.0)
    work.note("b", 0.3, 0.0)
    assert work.wait_s("a", 0.0) > REMEMBERED_S
    assert work.wait_s("b", 0.0) == 0.0


def test_however_many_are_busy_a_little_is_always_free():
    work = WorkShares(0.5)
    for number in range(100):
        work.note(f"busy {number}", 10.0, 0.0)
    work.note("late", 0.01, 0.0)
    assert work.wait_s("late", 0.0) == 0.0


def test_only_so_many_parties_are_remembered_and_those_that_used_most(monkeypatch):
    monkeypatch.setattr(shares, "PARTIES", 100)
    work = WorkShares(0.5)
    work.note("greedy", 100.0, 0.0)
    for number in range(1_000):
        work.note(f"address {number}", 0.001, 0.0)
        assert len(work._parties) <= 100
    assert work.wait_s("greedy", 0.0) > 0


def test_what_was_counted_ahead_is_taken_back():
    work = WorkShares(0.5)
    work.note("a", 3.0, 0.0)
    work.note("a", -3.0, 0.0)
    assert work.wait_s("a", 0.0) == 0.0
