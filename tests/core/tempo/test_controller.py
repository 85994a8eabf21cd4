"""Adaptive tempo: it follows the load, keeps every limit, settles, and frozen it stays put."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.phrase_run import PhraseRun
from antiphon.core.tempo.controller import (
    DEAD_BAND,
    Freeze,
    Load,
    Memory,
    Moment,
    begin,
    error_of,
    may_change,
    suggest,
)
from antiphon.core.tempo.meter import MINUTE_MS, Meter
from antiphon.core.tempo.phases import PHASES, Phases
from antiphon.core.tempo.policy import Adaptation, TempoLimits, TempoPolicy
from antiphon.core.tempo.score import Score
from tests.core.strategies import BRISK

ADAPTS = TempoPolicy(adaptation=Adaptation(enable=True))
BARS_TO_SETTLE = 10_000
"""A bound: 36 steps, up and down again, each after at most 230 bars of the smallest error."""


def is_change(said):
    return said.tempo_bpm is not None or said.phases is not None


class Mesh:
    """A meter that follows the controller, as the pulse's leader does."""

    def __init__(self, policy=ADAPTS, *, at_ms=0):
        self.policy = policy
        self.meter = policy.meter
        self.phases = policy.beats
        self.memory = begin(policy, self.meter.bpm)
        self.now_ms = self.meter.downbeat_before(at_ms)
        self.changed_ms = 0
        self.changes = []

    def bar(self, load, freeze=None):
        """One bar with this load, and what follows from it on its end."""
        before = self.meter.bpm, self.phases
        self.now_ms = self.meter.downbeat_after(self.now_ms)
        moment = Moment(
            meter=self.meter, phases=self.phases, at_ms=self.now_ms, changed_ms=self.changed_ms
        )
        self.memory, said = suggest(self.policy, self.memory, load, moment, freeze)
        if said.tempo_bpm is not None:
            self.meter = Meter(
                bpm=said.tempo_bpm, bar_len=self.meter.bar_len, anchor_ms=self.now_ms
            )
        if said.phases is not None:
            self.phases = said.phases
        if is_change(said):
            self.changed_ms = self.now_ms
            self.changes.append((self.now_ms, before, (self.meter.bpm, self.phases)))
        return said

    def until_still(self, load_at):
        """Bars until nothing can change any more while the load depends on nothing but this."""
        for bars in range(BARS_TO_SETTLE):
            memory = self.memory
            said = self.bar(load_at(self.meter.bpm, self.phases))
            rested = self.now_ms - self.changed_ms >= MINUTE_MS
            if not is_change(said) and rested and memory == self.memory:
                return bars
        pytest.fail(f"still moving after {BARS_TO_SETTLE} bars: {self.changes[-6:]}")


@st.composite
def loads(draw, bpm=15):
    tasks = draw(st.integers(0, 40))
    late = {phase: draw(st.integers(0, tasks // 3)) for phase in PHASES}
    due = draw(st.integers(0, 20))
    use = st.none() | st.floats(0, 1)
    return Load(
        bpm=bpm,
        queue_depth=draw(st.dictionaries(st.sampled_from("abc"), st.integers(0, 500), max_size=3)),
        tasks=tasks,
        overruns=sum(late.values()),
        overruns_by_phase=late,
        promises_due=due,
        promises_broken=draw(st.integers(0, due)),
        cpu=draw(use),
        gpu=draw(use),
        hints=tuple(draw(st.lists(st.integers(1, 600), max_size=3))),
    )


def waiting(depth, bpm=15):
    return Load(bpm=bpm, queue_depth={"build": depth}, tasks=10, cpu=0.1)


def strained(bpm=15):
    return Load(bpm=bpm, tasks=10, overruns=10, cpu=0.5)


@pytest.mark.req("B11", "B17")
@pytest.mark.parametrize(
    "hints, rests", [((20,), 19), ((12, 10, 6), 11), ((600,), 22), ((15,), 15)]
)
def test_while_nothing_is_felt_the_tempo_goes_to_what_scores_ask_for(hints, rests):
    mesh = Mesh()
    mesh.until_still(lambda bpm, _: Load(bpm=bpm, tasks=1, cpu=0.5, hints=hints))
    assert mesh.meter.bpm == rests, "within the hysteresis, and within the policy's limits"
    assert all(abs(old[0] - new[0]) == 1 for _, old, new in mesh.changes)


@pytest.mark.req("B17")
def test_a_load_that_is_felt_comes_before_what_scores_ask_for():
    mesh = Mesh()
    for _ in range(40):
        mesh.bar(Load(bpm=mesh.meter.bpm, tasks=10, overruns=10, cpu=0.5, hints=(24,)))
    assert mesh.meter.bpm < 15
    still = Mesh(TempoPolicy())
    for _ in range(40):
        said = still.bar(Load(bpm=15, tasks=1, cpu=0.5, hints=(24,)))
    assert (still.meter.bpm, "does not adapt" in said.why) == (15, True)


policies = st.builds(
    lambda low, mid, high, bar, pct: TempoPolicy(
        initial_bpm=low + mid,
        bar_len_beats=bar,
        limits=TempoLimits(min_bpm=low, max_bpm=low + mid + high),
        adaptation=Adaptation(enable=True, hysteresis_pct=pct),
    ),
    st.integers(1, 30),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(3, 16),
    st.integers(0, 40),
)


@pytest.mark.req("B16")
def test_work_that_waits_beside_idle_machines_makes_beats_shorter_and_overruns_make_them_longer():
    fast, slow = Mesh(), Mesh()
    for _ in range(40):
        fast.bar(waiting(1000, fast.meter.bpm))
        slow.bar(strained(slow.meter.bpm))
    assert fast.meter.bpm > 18
    assert slow.meter.bpm < 12


@pytest.mark.req("B16")
@pytest.mark.parametrize(
    "load",
    [
        Load(bpm=15, tasks=10, cpu=1.0),
        Load(bpm=15, tasks=10, gpu=1.0, cpu=0.1),
        Load(bpm=15, tasks=10, overruns=2),
        Load(bpm=15, promises_due=10, promises_broken=2),
    ],
    ids=["cpu", "gpu", "overruns", "promises"],
)
def test_each_sign_of_strain_alone_is_full_strain_when_it_is_bad_enough(load):
    assert error_of(load) == -1


@pytest.mark.req("B16")
def test_the_role_with_the_deepest_queue_counts_and_a_machine_in_use_leaves_no_room():
    assert error_of(Load(bpm=15, queue_depth={"a": 0, "b": 95}, tasks=5, cpu=0.0)) == 0.95
    assert error_of(Load(bpm=15, queue_depth={"a": 0, "b": 95}, tasks=5, cpu=0.8)) == 0
    assert error_of(Load(bpm=15)) == 0


@pytest.mark.req("B16")
def test_within_the_hysteresis_nothing_changes():
    mesh = Mesh()
    small = Load(bpm=15, tasks=100, overruns=2, cpu=0.5)
    assert 0 < abs(error_of(small)) < 0.2
    assert not any(is_change(mesh.bar(small)) for _ in range(10))


@pytest.mark.req("B16")
@BRISK
@given(policies, st.integers(0, 2**32), st.integers(5, 80))
def test_it_changes_on_downbeats_only_once_a_minute_by_one_bpm_and_within_the_limits(
    policy, seed, bars
):
    random, mesh = Random(seed), Mesh(policy)
    for _ in range(bars):
        mesh.bar(drawn(random, mesh.meter.bpm))
    last_ms = 0
    meter = policy.meter
    for at_ms, (old_bpm, old), (bpm, phases) in mesh.changes:
        assert meter.downbeat_before(at_ms) == at_ms
        assert at_ms - last_ms >= MINUTE_MS
        assert abs(bpm - old_bpm) <= 1
        assert (bpm == old_bpm) != (phases == old), "one thing at a time"
        assert policy.limits.min_bpm <= bpm <= policy.limits.max_bpm
        assert phases.beats == policy.bar_len_beats
        assert min(beats for _, beats in phases) >= 1
        last_ms = at_ms
        if bpm != old_bpm:
            meter = Meter(bpm=bpm, bar_len=policy.bar_len_beats, anchor_ms=at_ms)


def drawn(random, bpm):
    tasks = random.randint(0, 30)
    late = {phase: random.randint(0, tasks // 4) for phase in PHASES}
    due = random.randint(0, 10)
    return Load(
        bpm=bpm,
        queue_depth={"build": random.choice([0, 3, 30, 300])},
        tasks=tasks,
        overruns=sum(late.values()),
        overruns_by_phase=late,
        promises_due=due,
        promises_broken=random.randint(0, due),
        cpu=random.choice([None, random.random()]),
    )


@pytest.mark.req("B16")
@BRISK
@given(policies, st.integers(0, 2**32), st.integers(0, 60))
def test_it_settles_after_any_trace_whatever_a_steady_load_answers_to_each_tempo(
    policy, seed, bars
):
    """The load at each tempo and phases is drawn, so it may answer in the worst way to a step."""
    random, mesh = Random(seed), Mesh(policy)
    for _ in range(bars):
        mesh.bar(drawn(random, mesh.meter.bpm))
    answers = {}

    def load_at(bpm, phases):
        return answers.setdefault((bpm, phases), drawn(random, bpm))

    mesh.until_still(load_at)


@pytest.mark.req("B16")
def test_jobs_that_all_fit_at_one_tempo_and_none_at_the_next_do_not_make_it_swing():
    mesh = Mesh()

    def load_at(bpm, _):
        return waiting(1000, bpm) if bpm <= 17 else strained(bpm)

    mesh.until_still(load_at)
    assert mesh.meter.bpm == 17
    assert [new[0] for _, _, new in mesh.changes] == [16, 17, 18, 17]


@pytest.mark.req("B16")
def test_under_another_load_a_ceiling_is_forgotten():
    mesh = Mesh()
    mesh.until_still(lambda bpm, _: waiting(1000, bpm) if bpm <= 17 else strained(bpm))
    mesh.until_still(lambda bpm, _: Load(bpm=bpm, tasks=10, cpu=0.5))
    assert mesh.meter.bpm == 17
    mesh.until_still(lambda bpm, _: waiting(1000, bpm))
    assert mesh.meter.bpm > 20


@pytest.mark.req("B16")
@BRISK
@given(st.sampled_from(list(Freeze)), st.lists(loads(), min_size=1, max_size=30))
def test_frozen_means_frozen(freeze, trace):
    mesh = Mesh()
    mesh.memory = held = Memory(integral_bpm=1.25, direction=1)
    for load in trace:
        said = mesh.bar(load, freeze)
        assert not is_change(said)
        assert said.why
    assert mesh.memory is held


@pytest.mark.req("B16", "B17")
def test_a_policy_that_does_not_adapt_changes_nothing():
    mesh = Mesh(TempoPolicy())
    assert not any(is_change(mesh.bar(strained())) for _ in range(20))


@pytest.mark.req("B16")
def test_a_long_strain_winds_up_nothing():
    mesh = Mesh()
    for _ in range(100):
        mesh.bar(strained(mesh.meter.bpm))
    slowest, bars = mesh.meter.bpm, 0
    assert slowest == mesh.policy.limits.min_bpm
    while mesh.meter.bpm == slowest:
        mesh.bar(waiting(1000, mesh.meter.bpm))
        bars += 1
        assert bars <= 5


@pytest.mark.req("B16")
def test_off_a_downbeat_or_within_a_minute_nothing_may_change():
    meter = Meter(anchor_ms=0)
    moments = {
        at_ms: Moment(meter=meter, phases=Phases(), at_ms=at_ms, changed_ms=32_000)
        for at_ms in (32_000, 64_000, 96_000, 96_001, 100_000, 128_000)
    }
    assert [at_ms for at_ms, one in moments.items() if may_change(one)] == [96_000, 128_000]
    for one in moments.values():
        _, said = suggest(ADAPTS, Memory(), strained(), one)
        assert is_change(said) == may_change(one)


@pytest.mark.req("B16")
def test_a_beat_moves_to_the_phase_that_overruns_and_never_the_last_of_another():
    mesh = Mesh()
    late = Load(bpm=15, tasks=100, overruns=3, overruns_by_phase={"work": 3}, cpu=0.5)
    assert error_of(late) > -0.2
    said = mesh.bar(late)
    while not is_change(said):
        said = mesh.bar(late)
    assert said.phases == Phases(plan=1, work=5, review=2)
    assert "work" in said.why
    for _ in range(6):
        mesh.bar(late)
    assert mesh.phases == Phases(plan=1, work=6, review=1)
    back = Load(bpm=mesh.meter.bpm, tasks=100, overruns=3, overruns_by_phase={"plan": 3}, cpu=0.5)
    assert not any(mesh.bar(back).phases for _ in range(6)), "what took gives nothing back"


@pytest.mark.req("B16")
def test_a_new_leader_keeps_the_tempo_that_was_reached():
    memory = begin(ADAPTS, 19)
    moment = Moment(meter=Meter(bpm=19), phases=Phases(), at_ms=Meter(bpm=19).downbeat_after(10**9))
    _, said = suggest(ADAPTS, memory, Load(bpm=19, cpu=0.5, tasks=10), moment)
    assert not is_change(said)


@pytest.mark.req("B16")
def test_a_bar_at_the_tempo_before_says_nothing_about_this_one():
    moment = Moment(meter=Meter(bpm=16), phases=Phases(), at_ms=Meter(bpm=16).downbeat_after(10**9))
    memory, said = suggest(ADAPTS, Memory(), strained(15), moment)
    assert memory == Memory()
    assert not is_change(said)


@pytest.mark.req("B17")
@BRISK
@given(st.none() | st.integers(1, 600), st.integers(6, 24), st.integers(0, 2**40))
def test_the_meshs_tempo_overrides_a_scores_hint(hint, bpm, now_ms):
    """A phrase is counted in the beats of the mesh, whatever the score would like."""
    score, meter = Score(tempo=hint), Meter(bpm=bpm)
    phrase = PhraseRun.begin(meter, score.phrase(0), now_ms)
    assert phrase == PhraseRun.begin(meter, Score().phrase(0), now_ms)
    assert phrase.ends_ms - phrase.began_ms <= score.phases.beats * meter.beat_ms


@pytest.mark.req("B17")
def test_a_tempo_outside_new_limits_walks_back_into_them():
    policy = TempoPolicy(
        initial_bpm=15, limits=TempoLimits(max_bpm=16), adaptation=Adaptation(enable=True)
    )
    mesh = Mesh(policy)
    mesh.meter, mesh.memory = Meter(bpm=19), begin(policy, 19)
    for _ in range(30):
        mesh.bar(Load(bpm=mesh.meter.bpm, tasks=10, cpu=0.5))
    assert mesh.meter.bpm <= 16


@pytest.mark.req("B16")
def test_an_error_within_the_dead_band_never_adds_up():
    mesh = Mesh()
    tiny = Load(bpm=15, tasks=1000, overruns=9, cpu=0.5)
    assert not any(mesh.bar(tiny).tempo_bpm for _ in range(2000))
    assert abs(error_of(Load(bpm=15, tasks=5, overruns=1))) > DEAD_BAND
