"""Which beats a node follows, and what a leader may change."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.core.tempo.messages import BeatFrame, Suggestion
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import TempoPolicy, policy_hash, read_policy
from antiphon.core.tempo.pulse_state import PulseState, beat_frame, begun, on_downbeat
from antiphon.core.tempo.pulse_view import ALREADY_HEARD, PulseView, degraded_words

MESH = "m" * 16
POLICY = replace(TempoPolicy(), adaptation=replace(TempoPolicy().adaptation, enable=True))
BEAT_MS = 4_000
START_MS = 1_800_000_000_000


def frame(at_ms: int, term: int = 1, state: PulseState | None = None, policy=POLICY) -> BeatFrame:
    state = state or begun(policy)
    return beat_frame(MESH, state, policy, at_ms=at_ms, hlc=(at_ms, 0), revision=term)


def view(policy: TempoPolicy = POLICY, *, offset_ms: int = START_MS) -> PulseView:
    return PulseView(policy, MESH, offset_ms=offset_ms)


def take(seen: PulseView, at_ms: int, *, term: int = 1, own_ms: int | None = None, **how):
    own_ms = at_ms - START_MS if own_ms is None else own_ms
    author = how.pop("author", f"leader {term}")
    refused = seen.take(frame(at_ms, term, **how), author, sent_ms=at_ms, own_ms=own_ms)
    return "" if refused is None else refused.why


@pytest.mark.req("B1")
def test_a_frame_has_everything_that_follows_from_its_beat():
    one = frame(START_MS + 9_123, 7)
    assert one.beat_index == 1 + (START_MS + 9_123) // BEAT_MS % 8
    assert (one.beat_ms, one.bar_len_beats, one.tempo_bpm) == (4_000, 8, 15)
    assert one.downbeat == (one.beat_index == 1)
    assert one.phase == POLICY.beats.at(one.beat_index)
    assert one.policy_hash == policy_hash(POLICY)
    assert one.beat_epoch < one.deadline_at
    assert not {"bar", "beat"} & set(one.__struct_fields__), "no counters"


@pytest.mark.req("B7")
def test_the_highest_term_wins_until_it_was_silent_for_a_bar():
    seen = view()
    assert take(seen, START_MS, term=5) == ""
    assert "higher term" in take(seen, START_MS + BEAT_MS, term=4)
    assert take(seen, START_MS + BEAT_MS, term=6) == ""
    assert seen.leader(BEAT_MS) == "leader 6"
    assert take(seen, START_MS + 9 * BEAT_MS, term=2) == "", "the leases began anew"


@pytest.mark.req("B7")
def test_no_beat_is_followed_twice_whoever_sends_it():
    seen = view()
    assert take(seen, START_MS + 10, term=1) == ""
    assert take(seen, START_MS + 500, term=2) == ALREADY_HEARD
    assert take(seen, START_MS + 10, term=1) == ALREADY_HEARD


@pytest.mark.req("B7", "B9")
@given(
    st.lists(
        st.tuples(
            st.integers(0, 40), st.integers(1, 4), st.integers(0, BEAT_MS - 1), st.integers(0, 300)
        ),
        max_size=60,
    )
)
def test_whatever_arrives_one_leader_is_followed_in_each_beat_and_terms_only_grow(frames):
    seen, own_ms, followed = view(), 0, []
    for beat, term, within_ms, late_ms in frames:
        sent_ms = START_MS + beat * BEAT_MS + within_ms
        own_ms = max(own_ms, sent_ms - START_MS + late_ms)
        if take(seen, sent_ms, term=term, own_ms=own_ms) == "":
            followed.append((own_ms, sent_ms // BEAT_MS, term))
    assert len({beat for _, beat, _ in followed}) == len(followed)
    for (heard_ms, _, term), (next_ms, _, next_term) in pairwise(followed):
        assert next_term >= term or next_ms - heard_ms >= 8 * BEAT_MS


@pytest.mark.req("B6", "B8", "B9")
@given(
    skew_ms=st.integers(-50_000, 50_000),
    late=st.lists(st.integers(0, 400), min_size=10, max_size=40),
)
def test_a_node_whose_clock_is_wrong_keeps_the_beat(skew_ms, late):
    seen = view(offset_ms=START_MS + skew_ms)
    for number, late_ms in enumerate(late):
        sent_ms = START_MS + number * BEAT_MS
        take(seen, sent_ms, own_ms=number * BEAT_MS + late_ms)
    own_ms = len(late) * BEAT_MS + 1_000
    error_ms = seen.now_ms(own_ms) - (START_MS + own_ms)
    assert -min(late[-8:]) == error_ms, "late by the quickest of the last frames, and never early"
    silent_ms = own_ms + 3 * BEAT_MS
    assert seen.mode(silent_ms) == "local"
    assert seen.now_ms(silent_ms) - (START_MS + silent_ms) == error_ms, "it counts on"


@pytest.mark.req("B8")
def test_without_a_leader_the_median_of_the_downbeats_is_followed_and_the_tempo_frozen():
    seen = view()
    assert take(seen, START_MS) == ""
    gone_ms = 3 * BEAT_MS
    assert seen.mode(gone_ms) == "local"
    for author, ahead_ms in (("a", -300), ("b", 100), ("c", 90_000)):
        own_ms = gone_ms + 500
        assert take(seen, START_MS + own_ms + ahead_ms, own_ms=own_ms, term=0, author=author) == ""
    assert seen.mode(gone_ms + 500) == "median"
    assert len(seen._fresh_pulses(gone_ms + 500)) == 3
    shift_ms = seen.now_ms(gone_ms) - START_MS - gone_ms
    assert shift_ms == 100
    other = replace(begun(POLICY), bpm=16)
    assert "frozen" in take(seen, START_MS + 20_000, own_ms=20_000, term=0, state=other)
    assert take(seen, START_MS + 24_000, own_ms=24_000, term=9) == ""
    assert "there is a leader" in take(seen, START_MS + 25_000, own_ms=25_000, term=0)


@pytest.mark.req("B10")
@pytest.mark.parametrize("beats", range(1, 8))
def test_a_tempo_that_changes_within_a_bar_is_refused(beats):
    start_ms = POLICY.meter.downbeat_before(START_MS)
    seen = view()
    assert take(seen, start_ms) == ""
    changed = replace(begun(POLICY), bpm=16, anchor_ms=start_ms + beats * BEAT_MS)
    assert "changes" in take(seen, start_ms + beats * BEAT_MS, state=changed)
    assert seen.meter(0).bpm == 15


@pytest.mark.req("B10", "B16")
def test_a_step_of_one_bpm_on_a_downbeat_is_followed_once_a_minute():
    start_ms = POLICY.meter.downbeat_before(START_MS)
    seen, state = view(), begun(POLICY)
    assert take(seen, start_ms + 7 * BEAT_MS) == ""
    downbeat_ms = start_ms + 8 * BEAT_MS
    assert "more than 1" in take(
        seen, downbeat_ms, state=replace(state, bpm=17, anchor_ms=downbeat_ms)
    )
    faster = replace(state, bpm=16, anchor_ms=downbeat_ms)
    assert take(seen, downbeat_ms, state=faster) == ""
    assert seen.meter(downbeat_ms - START_MS).bpm == 16
    last_ms = downbeat_ms + 7 * faster.meter.beat_ms
    assert take(seen, last_ms, state=faster) == ""
    next_ms = downbeat_ms + faster.meter.bar_ms
    again = replace(faster, bpm=17, anchor_ms=next_ms)
    assert "twice in a minute" in take(seen, next_ms, state=again)


@pytest.mark.req("B10", "B16", "B17")
@given(st.lists(st.tuples(st.integers(1, 600), st.booleans()), min_size=1, max_size=80))
def test_whatever_is_suggested_a_leader_changes_on_downbeats_slowly_and_within_the_limits(asked):
    state, seen = begun(POLICY), view()
    at_ms = state.meter.downbeat_after(START_MS)
    changes = []
    for bpm, moves in asked:
        phases = Phases(plan=1, work=5, review=2) if moves else None
        before = state
        state = on_downbeat(state, POLICY, Suggestion(tempo_bpm=bpm, phases=phases), at_ms)
        if state.bpm != before.bpm:
            changes.append((at_ms, abs(state.bpm - before.bpm)))
            assert state.anchor_ms == at_ms == before.meter.downbeat_before(at_ms)
        assert POLICY.limits.min_bpm <= state.bpm <= POLICY.limits.max_bpm
        for beat in range(8):
            assert take(seen, at_ms + beat * state.meter.beat_ms, state=state) == ""
        assert (seen.meter(0).bpm, seen.phases(0)) == (state.bpm, state.phases_in(POLICY))
        at_ms += state.meter.bar_ms
    assert all(step == 1 for _, step in changes)
    assert all(two - one >= 60_000 for (one, _), (two, _) in pairwise(changes))


@pytest.mark.req("B16")
@pytest.mark.parametrize("how", [{"frozen": True}, {"enable": False}])
def test_nothing_changes_while_it_is_frozen_or_not_enabled(how):
    policy = replace(POLICY, adaptation=replace(POLICY.adaptation, **how))
    state = begun(policy)
    wish = Suggestion(tempo_bpm=24, phases=Phases(plan=1, work=5, review=2))
    assert on_downbeat(state, policy, wish, START_MS) == state


@pytest.mark.req("B10", "B25")
def test_another_policy_is_noticed_by_its_hash_and_the_one_before_is_followed_for_two_bars():
    other = read_policy({"initial_bpm": 20})
    seen = view()
    assert "another tempo policy" in take(seen, START_MS, policy=other)
    assert seen.differing == {"leader 1": policy_hash(other)}
    assert degraded_words(seen.mode(0), is_other_policy=True) == "another tempo policy"
    assert take(seen, START_MS + BEAT_MS) == ""
    assert seen.differing == {}
    seen.set_policy(other, BEAT_MS)
    assert take(seen, START_MS + 2 * BEAT_MS) == "", "the leader waits for its downbeat"
    assert seen.meter(2 * BEAT_MS).bpm == 15
    late_ms = 60 * BEAT_MS
    assert seen.meter(late_ms).bpm == 20, "nobody leads: it holds at once"
    assert "another tempo policy" in take(seen, START_MS + late_ms)


@pytest.mark.req("B17", "B25")
def test_a_new_policy_keeps_the_tempo_unless_it_names_another_one():
    adapted = replace(begun(POLICY), bpm=18, anchor_ms=START_MS)
    frozen = replace(POLICY, adaptation=replace(POLICY.adaptation, frozen=True))
    kept = on_downbeat(adapted, frozen, None, START_MS + 32_000)
    assert (kept.bpm, kept.anchor_ms, kept.policy) == (18, START_MS, policy_hash(frozen))
    slow = replace(POLICY, initial_bpm=10)
    reset = on_downbeat(adapted, slow, None, START_MS + 32_000)
    assert (reset.bpm, reset.anchor_ms) == (10, START_MS + 32_000)
    narrow = replace(POLICY, limits=replace(POLICY.limits, max_bpm=16))
    assert on_downbeat(adapted, narrow, None, START_MS + 32_000).bpm == 15


@pytest.mark.parametrize(
    "change",
    [
        {"cluster_id": "other"},
        {"beat_ms": 4_001},
        {"beat_index": 3},
        {"downbeat": True, "beat_index": 2},
        {"tempo_bpm": 25, "beat_ms": 2_400},
        {"phase": "review", "beat_index": 1, "downbeat": True},
        {"beat_epoch": "today"},
        {"phases": Phases(plan=1, work=1, review=1)},
        {"bar_len_beats": 9},
    ],
)
def test_frames_that_contradict_themselves_are_refused(change):
    seen, good = view(), frame(START_MS)
    bad = replace(good, **{"beat_index": good.beat_index % 8 + 1} | change)
    assert seen.take(bad, "x", sent_ms=START_MS, own_ms=0) is not None
    assert seen.mode(0) == "local"
