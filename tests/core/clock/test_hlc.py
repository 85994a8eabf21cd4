"""The hybrid clock: never twice, never back, never dragged ahead (spec §4.2)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.clock.hlc import (
    MAX_LOGICAL,
    MAX_WALL,
    ZERO,
    Clock,
    Hlc,
    MarkExceeded,
    pack,
    successor,
    unpack,
)
from antiphon.errors import Malformed, Rejected
from tests.core.strategies import BRISK, THOROUGH, hlcs

DRIFT = 2_000
physical = st.lists(st.integers(0, 10_000), min_size=1, max_size=30)


def clock(**how):
    return Clock(max_drift_ms=DRIFT, **how)


@THOROUGH
@given(physical)
def test_ticks_strictly_increase_whatever_the_wall_clock_does(times):
    ours = clock()
    issued = [ours.tick(now) for now in times]
    assert all(earlier < later for earlier, later in pairwise(issued))
    assert all(at.wall_ms >= now for at, now in zip(issued, times, strict=True))


@pytest.mark.parametrize(
    "last, now, expected",
    [
        ((0, 0), 5, (5, 0)),
        ((5, 0), 5, (5, 1)),
        ((5, 7), 4, (5, 8)),
        ((5, 7), 6, (6, 0)),
        ((5, MAX_LOGICAL - 1), 5, (5, MAX_LOGICAL)),
        ((5, MAX_LOGICAL), 5, (6, 0)),
        ((5, MAX_LOGICAL), 0, (6, 0)),
    ],
)
def test_a_tick_follows_the_paper_and_overflow_carries_into_wall_time(last, now, expected):
    ours = clock(start=Hlc(*last))
    assert ours.next(now) == expected
    assert ours.last == last
    assert ours.tick(now) == expected
    assert ours.last == expected


@BRISK
@given(hlcs)
def test_nothing_lies_between_a_timestamp_and_its_successor(at):
    after = successor(at)
    assert after > Hlc(*at)
    assert (after[0] << 16 | after[1]) == (at[0] << 16 | at[1]) + 1


@THOROUGH
@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.none() | hlcs | st.tuples(
        st.integers(0, 12_500), st.integers(0, MAX_LOGICAL))), max_size=30)
)  # fmt: skip
def test_the_clock_never_goes_back_and_passes_everything_that_it_merged(events):
    ours = clock()
    for now, remote in events:
        before = ours.last
        if remote is None:
            assert ours.tick(now) > before
        elif ours.receive(now, remote):
            assert remote[0] <= now + DRIFT
            assert ours.last == max(before, remote)
            assert ours.next(now) > remote
        else:
            assert remote[0] > now + DRIFT
            assert ours.last == before


@pytest.mark.parametrize("ahead, merged", [(DRIFT, True), (DRIFT + 1, False), (10**9, False)])
def test_a_timestamp_beyond_the_drift_leaves_the_clock_unmoved(ahead, merged):
    ours = clock(start=Hlc(1_000, 3))
    assert ours.receive(1_000, (1_000 + ahead, 0)) is merged
    assert ours.last == ((1_000 + ahead, 0) if merged else (1_000, 3))


def test_drift_is_measured_from_the_physical_clock_and_cannot_be_walked_up():
    ours = clock()
    assert ours.receive(0, (DRIFT, MAX_LOGICAL))
    assert not ours.receive(0, (DRIFT + 1, 0))
    assert ours.last == (DRIFT, MAX_LOGICAL)


# --- the mark --------------------------------------------------------------------------------


def test_the_clock_stops_at_its_mark_until_a_higher_one_is_reserved():
    ours = clock(limit_ms=100)
    assert ours.tick(100) == (100, 0)
    with pytest.raises(MarkExceeded):
        ours.tick(101)
    assert ours.last == (100, 0)
    assert ours.tick(100) == (100, 1)
    ours.reserve(101)
    assert ours.tick(101) == (101, 0)


def test_overflow_does_not_slip_past_the_mark():
    ours = clock(start=Hlc(100, MAX_LOGICAL), limit_ms=100)
    with pytest.raises(MarkExceeded) as refusal:
        ours.tick(5)
    assert refusal.value.reason == "mark"
    assert isinstance(refusal.value, Rejected)


def test_a_merged_timestamp_beyond_the_mark_is_not_passed_without_a_reserve():
    ours = clock(limit_ms=100)
    assert ours.receive(100, (1_000, 5))
    with pytest.raises(MarkExceeded):
        ours.tick(100)
    ours.reserve(1_000)
    assert ours.tick(100) == (1_000, 6)


def test_a_mark_is_never_lowered():
    ours = clock(limit_ms=100)
    ours.reserve(50)
    assert ours.limit_ms == 100


def test_the_last_timestamp_there_is_is_not_wrapped():
    ours = clock(start=Hlc(MAX_WALL, MAX_LOGICAL))
    with pytest.raises(MarkExceeded):
        ours.tick(0)


@THOROUGH
@given(st.lists(physical, min_size=2, max_size=5), st.integers(0, 500))
def test_a_restart_after_the_mark_never_issues_a_timestamp_again(runs, ahead):
    # What was promised on disk is all that survives: the wall clock may have stepped anywhere.
    mark, issued = 0, []
    for times in runs:
        ours = clock(start=Hlc(mark, MAX_LOGICAL), limit_ms=mark)
        for now in times:
            wanted = ours.next(now).wall_ms
            if wanted > ours.limit_ms:
                mark = wanted + ahead
                ours.reserve(mark)
            issued.append(ours.tick(now))
    assert len(set(issued)) == len(issued)
    assert issued == sorted(issued)


# --- fences ----------------------------------------------------------------------------------


@THOROUGH
@given(hlcs)
def test_a_fence_is_sixteen_hex_digits_that_read_back(at):
    fence = pack(at)
    assert len(fence) == 16
    assert int(fence, 16) == at[0] << 16 | at[1]
    assert unpack(fence) == at


@THOROUGH
@given(hlcs, hlcs)
def test_the_text_order_of_fences_is_the_order_of_time(one, other):
    assert (pack(one) < pack(other)) == (one < other)


@pytest.mark.parametrize(
    "at, fence",
    [(ZERO, "0" * 16), ((1, 2), "0000000000010002"), ((MAX_WALL, MAX_LOGICAL), "f" * 16),
     ((1_763_158_000_123, 7), "019a846801fb0007")],
)  # fmt: skip
def test_known_fences(at, fence):
    assert pack(at) == fence
    assert unpack(fence) == at


@pytest.mark.parametrize(
    "text",
    ["", "0", "f" * 15, "f" * 17, "1" + "0" * 16, "0" * 17, "g" * 16, "F" * 16, "0x" + "0" * 14,
     "-" + "0" * 15, "+" + "0" * 15, " " + "0" * 15, "0" * 15 + "\n", "0_0" + "0" * 13, "٠" * 16],
)  # fmt: skip
def test_what_is_no_fence_is_refused(text):
    with pytest.raises(Malformed):
        unpack(text)
