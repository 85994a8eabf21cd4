"""Whose turn it is, and how long a hold lasts: pure functions of what was heard and of the beat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.locks.lock_time import fixed, until_boundary
from antiphon.core.policy.locks.lock_turns import (
    CREDIT_MS,
    FORGET_S,
    MOST_TURNS,
    MOST_WAITERS,
    Arrival,
    LockTurns,
)
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases, phases_of_bar

MINE, OTHER = "00" * 8, "ff" * 8


def came(ticket=OTHER, arrived_ms=0, **more) -> Arrival:
    return Arrival(name="abc", agent="main", ticket=ticket, arrived_ms=arrived_ms, **more)


def test_the_rank_is_how_many_came_before_and_are_still_there():
    turns = LockTurns(MINE, 1_000)
    assert turns.rank(0.0) == 0
    turns.heard("a", came("1" * 16, 900), now_ms=1_000, now_s=0.0)
    turns.heard("b", came("2" * 16, 1_100), now_ms=1_100, now_s=0.1)
    turns.heard("c", came("3" * 16, 1_000), now_ms=1_100, now_s=0.1)
    assert turns.rank(0.1) == 1, "ties by ticket, and mine is the lowest"
    turns.heard("a", came("1" * 16, leaves=True), now_ms=1_200, now_s=0.2)
    assert turns.rank(0.2) == 0


def test_a_silent_waiter_is_forgotten_and_one_that_repeats_itself_is_not():
    turns = LockTurns(MINE, 1_000)
    for ticket in ("1" * 16, "2" * 16):
        turns.heard("a", came(ticket, 900), now_ms=1_000, now_s=0.0)
    turns.heard("a", came("1" * 16, 900), now_ms=1_000, now_s=FORGET_S / 2)
    assert turns.rank(FORGET_S) == 2
    assert turns.rank(FORGET_S + 0.1) == 1


def test_nobody_overtakes_by_claiming_to_have_come_long_ago():
    turns = LockTurns(MINE, 1_000)
    turns.heard("liar", came(OTHER, 0), now_ms=1_000 + CREDIT_MS + 1, now_s=20.0)
    assert turns.rank(20.0) == 0
    honest = LockTurns(OTHER, 50_000)
    honest.heard("old", came(MINE, 1_000), now_ms=50_010, now_s=50.0)
    assert honest.rank(50.0) == 1, "who comes later believes that others were there before"


def test_however_many_say_that_they_wait_only_so_many_are_kept():
    turns = LockTurns(MINE, 10**6)
    for number in range(MOST_WAITERS + 10):
        turns.heard("a", came(f"{number:016x}"[::-1], 999_000), now_ms=10**6, now_s=0.0)
    assert len(turns._others) == MOST_WAITERS
    assert turns.rank(0.0) == MOST_TURNS, "a crowd holds nobody up for long"


def test_a_hold_of_seconds_is_renewed_at_a_third_and_stops_at_two_thirds():
    time = fixed(30_000)
    assert (time.renew_after_ms, time.stop_after_ms) == (10_000, 20_000)


@pytest.mark.req("B14")
@given(
    st.sampled_from(["bar", "phase"]),
    st.integers(1, 60),
    st.integers(3, 64),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
)
def test_a_hold_in_beats_ends_with_a_phase_or_a_bar(which, bpm, bar_len, anchor_ms, now_ms):
    meter, phases = Meter(bpm=bpm, bar_len=bar_len, anchor_ms=anchor_ms), phases_of_bar(bar_len)
    first = until_boundary(which, meter, phases, now_ms, after_ms=0, least_ms=5_000)
    ends = now_ms + first.ttl_ms
    assert first.ttl_ms >= 5_000
    assert 0 <= first.renew_after_ms <= first.stop_after_ms < first.ttl_ms
    beat = (ends - meter.downbeat_before(ends)) // meter.beat_ms
    assert (ends - meter.downbeat_before(ends)) % meter.beat_ms == 0
    ends_of_phases = {0, phases.end_of("plan"), phases.end_of("work")}
    assert beat in ({0} if which == "bar" else ends_of_phases)
    later = now_ms + first.renew_after_ms
    renewed = until_boundary(which, meter, phases, later, after_ms=ends, least_ms=5_000)
    assert later + renewed.ttl_ms > ends
    assert later + renewed.ttl_ms <= ends + max(meter.bar_ms, 5_000 + meter.bar_ms)


def test_phases_that_fill_less_than_the_bar_still_end_with_it():
    meter, phases = Meter(bpm=60, bar_len=8), Phases(plan=1, work=1, review=1)
    time = until_boundary("phase", meter, phases, 2_500, after_ms=0, least_ms=1_000)
    assert 2_500 + time.ttl_ms == 8_000
