"""A phrase as it runs: phases, where it is cut, leases that end there, budgets for waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.phrase_run import (
    PhraseRun,
    RunTime,
    WaitUse,
    capped_phases,
    capped_waits,
    whole_beat,
)
from antiphon.core.tempo.budget import PhaseCaps, WaitCaps
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import PHASES, Phases
from antiphon.core.tempo.score import PhraseRetry, Score, WaitBudget

METER = Meter(bpm=60)
BEAT = 1000

meters = st.builds(
    Meter,
    bpm=st.integers(1, 600),
    bar_len=st.integers(3, 64),
    anchor_ms=st.integers(0, 10**13),
)
phases = st.builds(Phases, plan=st.integers(1, 9), work=st.integers(1, 9), review=st.integers(1, 9))
times = st.integers(0, 2 * 10**13)


def begun(now_ms=0, **beats):
    return PhraseRun.begin(METER, Phases(**beats), now_ms)


@pytest.mark.req("B11", "B12")
@given(meters, phases, times, st.integers(0, 10**6))
def test_a_phrase_begins_with_a_whole_beat_and_has_exactly_its_beats(meter, beats, start, later):
    run = PhraseRun.begin(meter, beats, start)
    assert 0 <= run.began_ms - start < meter.beat_ms
    assert (run.began_ms - meter.anchor_ms) % meter.beat_ms == 0
    assert run.ends_ms == run.began_ms + beats.beats * meter.beat_ms
    now = start + later
    assert run.is_over(now) == (run.beats_left(now) == 0)
    assert run.phase_at(now) in PHASES


@pytest.mark.req("B12")
@given(meters, phases, times, st.lists(st.integers(0, 20_000), max_size=4))
def test_moving_on_never_gives_a_phase_more_beats_nor_the_whole_more_time(
    meter, beats, start, pauses
):
    whole = PhraseRun.begin(meter, beats, start)
    run, now = whole, start
    for pause in pauses:
        now += pause
        moved = run.moved_on(now)
        if run.phase is not None and run.is_over(now):
            assert moved == run, "after an overrun there is no next phase"
        run = moved
        assert run.phase is not None
        allowed = dict(beats)[run.phase] * meter.beat_ms
        assert run.ends_ms - run.phase_began_ms == allowed
        assert run.ends_ms <= whole.ends_ms


@pytest.mark.req("B12")
def test_each_phase_is_cut_after_its_own_beats():
    run = begun(plan=2, work=4, review=2)
    assert [run.phase_at(beat * BEAT) for beat in (0, 1, 2, 5, 6, 7)] == [
        "plan",
        "plan",
        "work",
        "work",
        "review",
        "review",
    ]
    assert run.overran == "its phrase of 8 beats"
    work = run.moved_on(500)
    assert (work.phase, work.phase_began_ms, work.ends_ms) == ("work", 1000, 5000)
    assert not work.is_over(4999)
    assert work.is_over(5000)
    assert work.beats_left(4001) == 1
    assert work.overran == "its 4 beats of work"
    assert work.moved_on(5000) == work
    review = work.moved_on(1200)
    assert (review.phase, review.ends_ms) == ("review", 4000)
    assert review.moved_on(1500) == review, "there is none after it"


def test_who_names_its_first_phase_too_late_has_overrun_it():
    late = begun(plan=2).moved_on(2000)
    assert late.phase == "plan"
    assert late.is_over(2000)


@pytest.mark.req("B11")
def test_the_next_phrase_begins_with_a_downbeat_after_whole_bars():
    run = begun(now_ms=2500, plan=1, work=1, review=1)
    assert run.began_ms == 3000
    assert run.next_phrase_ms(run.ends_ms) == 16_000, "a bar after 3 s is at 11 s"
    assert begun(plan=2, work=4, review=2).next_phrase_ms(8000) == 8000
    assert begun(plan=2, work=4, review=2).next_phrase_ms(8001) == 16_000


@pytest.mark.req("B11", "B17")
def test_retries_shrink_and_a_budget_only_lowers():
    score = Score(
        phases=Phases(plan=2, work=8, review=2),
        wait_budget=WaitBudget(help=2, io=1),
        retry=PhraseRetry(max_phrases=3),
    )
    assert [capped_phases(score, n, PhaseCaps()).work for n in range(4)] == [8, 4, 2, 2]
    assert capped_phases(score, 0, PhaseCaps(work=3, plan=9)) == Phases(plan=2, work=3, review=2)
    assert capped_waits(score.wait_budget, WaitCaps(help=0, io=5)) == WaitBudget(help=0, io=1)


@pytest.mark.req("B13")
def test_help_has_one_budget_for_the_phrase_and_io_one_for_each_wait():
    use = WaitUse(budget=WaitBudget(help=2, io=1), beat_ms=BEAT)
    assert (use.left_ms("help"), use.left_ms("io")) == (2000, 1000)
    use = use.waited("io", 900).waited("help", 1500)
    assert (use.left_ms("help"), use.left_ms("io")) == (500, 1000)
    assert use.waited("help", 900).left_ms("help") == 0


@pytest.mark.req("B14")
@given(meters, phases, times, st.integers(1, 10**6), st.integers(1, 10**5), st.integers(0, 10**7))
def test_a_lease_ends_with_a_phase_or_a_bar_within_its_bounds(
    meter, beats, now, wanted, least, more
):
    run = PhraseRun.begin(meter, beats, now)
    most = max(wanted, least) + more
    lease = run.lease_ms(now, wanted_ms=max(wanted, least), least_ms=least, most_ms=most)
    assert least <= lease <= most
    ends = now + lease
    phase_ends = {run.began_ms + run.phases.end_of(one) * meter.beat_ms for one in PHASES}
    is_boundary = ends in phase_ends or (ends - meter.anchor_ms) % meter.bar_ms == 0
    if run.boundary(now + max(wanted, least)) - now <= most:
        assert is_boundary
    elif most - least >= meter.beat_ms:
        assert (ends - meter.anchor_ms) % meter.beat_ms == 0


@given(meters, times)
def test_a_whole_beat_is_the_first_at_or_after(meter, now):
    whole = whole_beat(meter, now)
    assert 0 <= whole - now < meter.beat_ms
    assert meter.beat_at(whole).epoch_ms == whole


def test_without_a_score_a_job_is_in_the_bars_phase():
    time = RunTime(meter=METER, phases=Phases())
    assert [time.beat(ms) for ms in (0, 7999, 8000)] == [1, 8, 1]
    assert [time.phase(ms) for ms in (0, 2000, 6000)] == ["plan", "work", "review"]
    assert [time.beats_left(ms) for ms in (0, 7000)] == [8, 1]
