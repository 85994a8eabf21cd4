"""Bars are counted in downbeats, also where the tempo changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.bar_tokens.bar_count import KEPT, BarCount
from antiphon.core.tempo.meter import Meter

SLOW = Meter(bpm=15, bar_len=8)
BAR_MS = SLOW.bar_ms
FAST = Meter(bpm=30, bar_len=8, anchor_ms=10 * BAR_MS)


@pytest.mark.req("B20")
@pytest.mark.parametrize(
    "start, now, bars",
    [
        (0, 0, 0),
        (0, BAR_MS - 1, 0),
        (0, BAR_MS, 1),
        (0, 2 * BAR_MS - 1, 1),
        (0, 2 * BAR_MS, 2),
        (BAR_MS - 1, BAR_MS, 1),
        (BAR_MS, 0, 0),
    ],
)
def test_a_bar_has_passed_with_each_downbeat(start, now, bars):
    assert BarCount.of(SLOW).since(start, now) == bars


@pytest.mark.req("B20")
def test_after_a_change_of_tempo_the_new_downbeats_count():
    count = BarCount.of(SLOW).noted(FAST)
    change = FAST.anchor_ms
    before = change - BAR_MS
    assert count.since(before, change - 1) == 0
    assert count.since(before, change) == 1
    assert count.since(before, change + FAST.bar_ms - 1) == 1
    assert count.since(before, change + FAST.bar_ms) == 2
    assert count.since(change, change + 3 * FAST.bar_ms) == 3
    assert BarCount.of(SLOW).since(before, change + FAST.bar_ms) == 1, "as if nothing had changed"


def test_a_change_that_is_to_come_counts_from_its_downbeat_on():
    count = BarCount.of(SLOW).noted(FAST)
    assert count.since(0, 5 * BAR_MS) == 5


def tempi(count: BarCount) -> list[int]:
    return [one.meter.bpm for one in count.stretches]


def test_a_meter_that_begins_earlier_replaces_those_after_it():
    wrong = Meter(bpm=60, bar_len=8, anchor_ms=20 * BAR_MS)
    assert tempi(BarCount.of(SLOW).noted(wrong).noted(FAST)) == [15, 30]
    assert tempi(BarCount.of(SLOW).noted(SLOW)) == [15]


def test_the_same_tempo_from_another_downbeat_is_no_change():
    """Frames count from the downbeat of their own bar, and the median shifts it a little."""
    count = BarCount.of(SLOW)
    for bar in range(3 * KEPT):
        count = count.noted(replace(SLOW, anchor_ms=bar * BAR_MS + bar % 3))
        assert tempi(count) == [15]
    now = 3 * KEPT * BAR_MS
    assert count.since(now - 5 * BAR_MS, now + BAR_MS // 2) == 6
    assert count.meter.anchor_ms % BAR_MS == (3 * KEPT - 1) % 3


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(6, 24)), max_size=2 * KEPT),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_it_is_the_number_of_downbeats_one_would_hear(changes, start, ahead):
    meter, count, downbeats = SLOW, BarCount.of(SLOW), []
    for bars, bpm in changes:
        downbeats += [meter.anchor_ms + at * meter.bar_ms for at in range(bars)]
        meter = Meter(bpm=bpm, bar_len=8, anchor_ms=meter.anchor_ms + bars * meter.bar_ms)
        count = count.noted(meter)
    start = max(start, count.stretches[0].from_ms)
    now = start + ahead
    at = meter.anchor_ms
    while at <= now:
        downbeats.append(at)
        at += meter.bar_ms
    assert len(count.stretches) <= KEPT
    assert count.since(start, now) == len({one for one in downbeats if start < one <= now})
