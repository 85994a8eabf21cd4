"""Beats and bars follow from the time, a tempo and an anchor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases, phases_of_bar
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.core.tempo.score import Score, phrase_beats

TIMES = st.integers(0, 2**47)
METERS = st.builds(
    Meter, bpm=st.integers(1, 600), bar_len=st.integers(3, 64), anchor_ms=st.integers(0, 2**42)
)
HOUR_MS = 3_600_000


@pytest.mark.req("B6")
@pytest.mark.parametrize(
    "now_ms, index, epoch_ms",
    [(0, 1, 0), (3_999, 1, 0), (4_000, 2, 4_000), (31_999, 8, 28_000), (32_000, 1, 32_000)],
)
def test_at_fifteen_beats_a_minute_a_beat_is_four_seconds_and_a_bar_thirty_two(
    now_ms, index, epoch_ms
):
    beat = Meter().beat_at(now_ms)
    assert (beat.index, beat.epoch_ms) == (index, epoch_ms)
    assert beat.is_downbeat == (index == 1)


@pytest.mark.req("B6")
@given(METERS, TIMES)
def test_every_time_is_in_one_beat_and_the_next_one_begins_where_it_ends(meter, now_ms):
    beat, following = meter.beat_at(now_ms), meter.next_beat(now_ms)
    assert beat.epoch_ms <= now_ms < following.epoch_ms == beat.epoch_ms + meter.beat_ms
    assert 1 <= beat.index <= meter.bar_len
    assert following.index == beat.index % meter.bar_len + 1
    down = meter.downbeat_before(now_ms)
    assert meter.beat_at(down) == type(beat)(1, down)
    assert down <= now_ms < meter.downbeat_after(now_ms) == down + meter.bar_ms
    assert beat.epoch_ms == down + (beat.index - 1) * meter.beat_ms


@pytest.mark.req("B6")
@given(METERS, TIMES, st.integers(-1_000, 1_000))
def test_whole_beats_since_a_time_are_counted_exactly(meter, start_ms, beats):
    now_ms = start_ms + beats * meter.beat_ms
    assert meter.beats_since(start_ms, now_ms) == max(beats, 0)
    assert meter.beats_since(start_ms, now_ms + meter.beat_ms - 1) == max(beats, 0)


@pytest.mark.req("B24")
@given(st.integers(1, 600))
def test_in_an_hour_the_count_of_beats_is_within_a_hundredth(bpm):
    meter = Meter(bpm=bpm)
    counted = meter.beats_since(0, HOUR_MS)
    assert abs(counted - bpm * 60) <= bpm * 60 / 100


@pytest.mark.req("B25")
@given(st.integers(3, 64))
def test_a_bar_is_divided_among_the_three_phases_without_a_rest(bar_len):
    phases = phases_of_bar(bar_len)
    assert phases.beats == bar_len
    assert phases.work >= phases.plan == phases.review >= 1
    said = [phases.at(index) for index in range(1, bar_len + 1)]
    assert said == ["plan"] * phases.plan + ["work"] * phases.work + ["review"] * phases.review


@pytest.mark.req("B11")
def test_each_retry_has_half_of_the_beats_and_at_least_one():
    score = Score(phases=Phases(plan=2, work=9, review=1))
    assert score.phrase(0) == Phases(plan=2, work=9, review=1)
    assert score.phrase(1) == Phases(plan=1, work=4, review=1)
    assert score.phrase(7) == score.phrase(1), "two phrases at most, so the second is the last"


@pytest.mark.req("B11")
@given(st.integers(1, 500), st.integers(3, 64))
def test_a_phrase_is_whole_bars_with_room_for_its_phases(beats, bar_len):
    phases = Phases(plan=beats, work=1, review=1)
    length = phrase_beats(phases, bar_len)
    assert length % bar_len == 0
    assert length - bar_len < phases.beats <= length


@pytest.mark.req("B25")
def test_a_policy_with_beats_for_its_phases_overrides_the_usual_division():
    policy = TempoPolicy(phases=Phases(plan=1, work=6, review=1))
    assert policy.beats.at(2) == "work"
    assert TempoPolicy().beats == Phases(plan=2, work=4, review=2)


@pytest.mark.req("B6")
def test_the_distance_of_a_time_in_beats_is_the_nearest_number():
    away = [Meter().beats_until(10_000, 10_000 + ms) for ms in (0, 1_999, 2_000, 4_000, 9_999)]
    assert away == [0, 0, 1, 1, 2]
    ago = [Meter().beats_until(10_000, 10_000 - ms) for ms in (1_999, 2_000, 4_000, 9_999)]
    assert ago == [0, -1, -1, -2]
