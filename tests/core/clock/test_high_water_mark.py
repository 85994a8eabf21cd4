"""Where a key's clock may go on from: never twice, and not held up by what was spent too early."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.core.clock.high_water_mark import AHEAD_MS, MarkedClock, Promise, TooEarly
from antiphon.core.clock.hlc import MAX_LOGICAL, Hlc, Stretch, first_free, gathered
from antiphon.core.clock.mesh_time import Now
from tests.core.strategies import THOROUGH

DRIFT = 2_000
NOON = 1_000_000
LATER = NOON + 500_000
LONG_SPENT = (Stretch(0, NOON - 1), Stretch(LATER, LATER + 1_000))


def clock(mark_ms=0, spent=()):
    return MarkedClock(mark_ms, spent, max_drift_ms=DRIFT)


def stamped(ours, now):
    """A timestamp, with whatever it takes promised first."""
    given = ours.stamp(now)
    if isinstance(given, Promise):
        ours.reserve(given)
        given = ours.stamp(now)
    return given


def test_the_first_timestamp_needs_a_promise_and_those_up_to_the_mark_need_none():
    ours = clock()
    promise = ours.stamp(Now(NOON))
    assert promise == Promise(NOON + AHEAD_MS, NOON, ())
    assert promise.spent == (Stretch(NOON, NOON + AHEAD_MS),)
    assert ours.stamp(Now(NOON)) == promise, "asking again changes nothing"
    ours.reserve(promise)
    assert ours.stamp(Now(NOON)) == Hlc(NOON, 0)
    assert ours.stamp(Now(NOON + AHEAD_MS)) == Hlc(NOON + AHEAD_MS, 0)
    assert isinstance(ours.stamp(Now(NOON + AHEAD_MS + 1)), Promise)


def test_a_stretch_goes_on_while_the_clock_does_and_another_begins_after_a_leap():
    ours = clock()
    stamped(ours, Now(NOON))
    on = ours.stamp(Now(NOON + AHEAD_MS + DRIFT))
    assert on.spent == (Stretch(NOON, NOON + 2 * AHEAD_MS + DRIFT),)
    leap = ours.stamp(Now(LATER))
    assert leap.spent == (Stretch(NOON, NOON + AHEAD_MS), Stretch(LATER, LATER + AHEAD_MS))


@pytest.mark.parametrize(
    "mark, spent, now, at_ms",
    [
        pytest.param(0, (), Now(NOON), NOON, id="nothing was ever used"),
        pytest.param(NOON, (), Now(NOON - 500), NOON + 1, id="behind the mark, within the drift"),
        pytest.param(LATER, (), Now(NOON), LATER + 1, id="all before the mark may have been used"),
        pytest.param(LATER + 1_000, LONG_SPENT, Now(NOON), NOON, id="back before what was spent"),
        pytest.param(NOON - 1, LONG_SPENT, Now(LATER), LATER + 1_001, id="over what was spent"),
        pytest.param(
            LATER + 1_000,
            LONG_SPENT,
            Now(NOON, least_ms=LATER),
            LATER + 1_001,
            id="not back: it is the machine that is behind",
        ),
        pytest.param(
            LATER + 1_000,
            LONG_SPENT,
            Now(NOON, most_ms=LATER),
            LATER + 1_001,
            id="not back: it may be as late as that",
        ),
        pytest.param(
            LATER + 1_000,
            LONG_SPENT,
            Now(NOON - 400, most_ms=NOON),
            NOON,
            id="back, and over what was spent there",
        ),
    ],
)
def test_where_a_clock_goes_on_from(mark, spent, now, at_ms):
    ours = clock(mark, spent)
    assert ours.next(now) == Hlc(at_ms, 0)
    assert stamped(ours, now) == Hlc(at_ms, 0)


@pytest.mark.parametrize(
    "now, mark, why",
    [
        (Now(NOON + DRIFT, most_ms=NOON), 0, None),
        (Now(NOON + DRIFT + 1, most_ms=NOON), 0, TooEarly(DRIFT + 1, is_spent=False)),
        (Now(NOON, most_ms=NOON), NOON + DRIFT - 1, None),
        (Now(NOON, most_ms=NOON), NOON + DRIFT, TooEarly(DRIFT + 1, is_spent=True)),
        (Now(NOON), LATER, None),
    ],
)
def test_nothing_is_stamped_that_everybody_would_refuse(now, mark, why):
    given = stamped(clock(mark), now)
    assert given == why if why is not None else isinstance(given, Hlc)


def test_what_a_process_did_not_use_is_there_for_the_next():
    ours = clock()
    assert ours.unused() is None
    stamped(ours, Now(NOON))
    unused = ours.unused()
    assert unused == Promise(NOON, NOON, ())
    again = clock(unused.wall_ms, unused.spent)
    assert stamped(again, Now(NOON + 1)) == Hlc(NOON + 1, 0)
    assert stamped(clock(NOON + AHEAD_MS, ours.spent), Now(NOON + 1)) > Hlc(NOON + AHEAD_MS, 0)


def test_a_merged_timestamp_is_passed_and_one_beyond_the_drift_is_not():
    ours = clock()
    assert ours.receive(NOON, (NOON + DRIFT, 7))
    assert not ours.receive(NOON, (NOON + DRIFT + 1, 0))
    assert stamped(ours, Now(NOON)) == Hlc(NOON + DRIFT, 8)


def test_stretches_are_joined_where_they_lie_nearest_and_free_nothing():
    spent = [Stretch(1, 5), Stretch(6, 9), Stretch(20, 21), Stretch(24, 30), Stretch(500, 600)]
    assert gathered(spent) == ((1, 9), (20, 21), (24, 30), (500, 600))
    assert gathered(spent, most=2) == ((1, 30), (500, 600))
    assert first_free(3, gathered(spent)) == 10
    assert first_free(21, (Stretch(20, 21), Stretch(22, 23))) == 24
    assert first_free(700, gathered(spent)) == 700


walls = st.integers(NOON, NOON + 20_000) | st.integers(NOON, NOON + 4_000_000)
bounds = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000))
steps = st.tuples(
    walls, bounds | st.none(), st.sampled_from(["stamp", "lose", "crash", "settle", "merge"])
)


@THOROUGH
@given(st.lists(steps, max_size=40))
@example(
    # It went back, and a merged timestamp led it into what it had spent before that.
    [
        (NOON + 1, None, "stamp"),
        (NOON, None, "crash"),
        (NOON + 1, None, "merge"),
        (NOON, None, "stamp"),
        (NOON + 1, None, "merge"),
    ]
)
def test_no_timestamp_is_issued_twice_and_each_lies_under_what_is_on_disk(story):
    ours, disk, issued = clock(), (0, ()), set()
    for wall_ms, known, deed in story:
        now = Now(wall_ms)
        if known is not None:
            now = Now(wall_ms, least_ms=wall_ms - known[0], most_ms=wall_ms - known[0] + known[1])
        if deed == "merge":
            ours.receive(wall_ms, (wall_ms + DRIFT, MAX_LOGICAL))
        if deed == "settle" and (unused := ours.unused()) is not None:
            disk = (unused.wall_ms, unused.spent)
        if deed in ("settle", "crash"):
            ours = clock(*disk)
        given = ours.stamp(now)
        if isinstance(given, Promise) and deed != "lose":
            disk = (given.wall_ms, given.spent)
            ours.reserve(given)
            given = ours.stamp(now)
        if isinstance(given, Hlc):
            assert given not in issued
            assert any(stretch.from_ms <= given.wall_ms <= stretch.to_ms for stretch in disk[1])
            assert given.wall_ms <= now.most_ms + DRIFT
            issued.add(given)
