"""Which beat it was: by the tempo and the policy that held at the time."""

import pytest
from msgspec.structs import replace

from antiphon.core.tempo.messages import Suggestion
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import DEFAULT_POLICY, TempoPolicy, policy_hash
from antiphon.core.tempo.pulse_state import PAST, beat_frame, begun, on_downbeat
from antiphon.core.tempo.tempo_history import BeatStamp, DatedPolicy, TempoHistory, span_of

BAR_MS = 32_000
SLOW = DatedPolicy(0, DEFAULT_POLICY)
FAST_POLICY = TempoPolicy(initial_bpm=20, bar_len_beats=4, phases=Phases(plan=1, work=1, review=2))
CHANGE_MS = 10 * BAR_MS + 5_000
FAST = DatedPolicy(CHANGE_MS, FAST_POLICY)


@pytest.mark.req("B18", "B27")
def test_a_beat_follows_from_the_time_and_the_policy():
    history = TempoHistory([SLOW])
    found = [history.at(BAR_MS + beat * 4_000 + 500) for beat in range(8)]
    assert [stamp.beat for stamp in found] == [1, 2, 3, 4, 5, 6, 7, 8]
    phases = ["plan"] * 2 + ["work"] * 4 + ["review"] * 2
    assert [stamp.phase for stamp in found] == phases


@pytest.mark.req("B18")
def test_a_new_policy_leaves_the_beats_before_it_as_they_were():
    moments = range(CHANGE_MS - 2 * BAR_MS, CHANGE_MS, 777)
    before = [TempoHistory([SLOW]).at(at_ms) for at_ms in moments]
    history = TempoHistory([SLOW, FAST])
    assert [history.at(at_ms) for at_ms in moments] == before
    assert history.in_force(CHANGE_MS) == (FAST_POLICY.meter, FAST_POLICY.beats)
    assert history.at(CHANGE_MS + 9_000) != TempoHistory([SLOW]).at(CHANGE_MS + 9_000)


@pytest.mark.req("B18")
def test_a_leader_keeps_the_old_beats_until_its_downbeat_and_then_counts_from_there():
    old, new = begun(DEFAULT_POLICY, at_ms=BAR_MS), 11 * BAR_MS
    led = on_downbeat(old, FAST_POLICY, None, new)
    history = TempoHistory([SLOW, FAST], [*led.past, led.span])
    assert history.at(new - 1) == BeatStamp(8, "review")
    assert [history.at(new + beat * 3_000).beat for beat in range(5)] == [1, 2, 3, 4, 1]


@pytest.mark.req("B18")
def test_what_a_leader_adapted_is_how_it_was_counted():
    policy = replace(DEFAULT_POLICY, adaptation=replace(DEFAULT_POLICY.adaptation, enable=True))
    state = begun(policy, at_ms=0)
    moved = on_downbeat(state, policy, Suggestion(tempo_bpm=16, phases=Phases(3, 3, 2)), BAR_MS)
    assert (moved.bpm, moved.since_ms) == (16, BAR_MS)
    history = TempoHistory([DatedPolicy(0, policy)], [*moved.past, moved.span])
    assert history.at(BAR_MS - 1) == BeatStamp(8, "review")
    assert history.at(BAR_MS + 2 * 3_750) == BeatStamp(3, "plan")
    assert history.in_force(BAR_MS)[0].bpm == 16


@pytest.mark.req("B18")
def test_a_policy_that_no_leader_followed_holds_at_once():
    led = begun(DEFAULT_POLICY, at_ms=BAR_MS).span
    history = TempoHistory([SLOW, FAST], [led])
    assert history.in_force(CHANGE_MS - 1)[0].bpm == 15
    assert history.in_force(CHANGE_MS) == (FAST_POLICY.meter, FAST_POLICY.beats)
    much_later = replace(led, policy=policy_hash(FAST_POLICY), from_ms=CHANGE_MS + 9 * BAR_MS)
    history = TempoHistory([SLOW, FAST], [led, much_later])
    assert history.in_force(CHANGE_MS) == (FAST_POLICY.meter, FAST_POLICY.beats)


@pytest.mark.req("B18")
def test_every_frame_of_a_leader_gives_the_span_that_it_stored():
    state = begun(DEFAULT_POLICY, at_ms=3 * BAR_MS)
    frames = [
        beat_frame("mesh", state, DEFAULT_POLICY, at_ms=at_ms, hlc=(at_ms, 0), revision=1)
        for at_ms in range(3 * BAR_MS, 5 * BAR_MS, 1_999)
    ]
    assert all(span_of(frame).continues(state.span) for frame in frames)
    shifted = replace(state, anchor_ms=1_000)
    frame = beat_frame("mesh", shifted, DEFAULT_POLICY, at_ms=9_000, hlc=(9, 0), revision=1)
    assert not span_of(frame).continues(state.span)
    assert not span_of(frame).continues(None)


def test_how_much_a_leader_remembers_is_bounded():
    policies = [replace(DEFAULT_POLICY, cluster_id=name) for name in ("one", "two")]
    state = begun(DEFAULT_POLICY)
    for bar in range(PAST + 9):
        state = on_downbeat(state, policies[bar % 2], None, bar * BAR_MS)
    assert len(state.past) == PAST
    assert state.past[-1].from_ms == (PAST + 7) * BAR_MS
