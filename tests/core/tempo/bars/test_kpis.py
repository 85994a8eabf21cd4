"""Key figures and alarms: their formulas, what has no divisor, and no flapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.tempo.bars.alarms import BARS, AlarmBar, alarms, silent_jobs
from antiphon.core.tempo.bars.kpis import KPIS, Tally, combined, kpis
from tests.core.strategies import BRISK


@pytest.mark.req("B22")
def test_each_figure_has_its_formula():
    tally = Tally(
        beats=8,
        succeeded=4,
        beats_used=20,
        beats_waited=5,
        beats_useful=12,
        promises_due=10,
        promises_broken=1,
        cost=2.0,
        firsts=(1.0, 3.0, 2.0, 10.0),
    )
    assert kpis(tally) == {
        "tnt": 0.5,
        "bpd": 5.0,
        "wr": 0.25,
        "eta": 0.6,
        "pmr": 0.1,
        "cpd": 0.5,
        "ttfu": 2.5,
    }


@pytest.mark.req("B22")
def test_without_a_divisor_a_figure_is_null():
    assert kpis(Tally()) == dict.fromkeys(KPIS)
    assert kpis(Tally(succeeded=1))["cpd"] is None, "no cost was measured"


@pytest.mark.req("B22")
@BRISK
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_the_figures_of_several_bars_are_those_of_their_sum(bars):
    tallies = [Tally(beats=8, succeeded=good, beats_used=used) for good, used in bars]
    whole = kpis(combined(tallies))
    assert whole["tnt"] == round(sum(good for good, _ in bars) / (8 * len(bars)), 6)
    done, used = (sum(values) for values in zip(*bars, strict=True))
    assert whole["bpd"] == (round(used / done, 6) if done else None)


def bar(*, due=0, broken=0, tasks=0, late=0, silent=()):
    tally = Tally(promises_due=due, promises_broken=broken, tasks=tasks)
    return AlarmBar(tally=tally, overruns=late, silent=silent)


def names(raised):
    return [alarm.name for alarm in raised]


@pytest.mark.req("B19")
@pytest.mark.parametrize(
    "due, broken, is_raised",
    [(10, 1, False), (10, 2, True), (4, 4, False), (5, 1, True), (0, 0, False)],
)
def test_promises_that_are_missed_raise_an_alarm(due, broken, is_raised):
    found = names(alarms((), [bar(due=due, broken=broken)]))
    assert found == (["promise_miss_rate"] if is_raised else [])


@pytest.mark.req("B19")
def test_the_rate_is_that_of_five_bars():
    bad, good = bar(due=2, broken=2), bar(due=2)
    assert names(alarms((), [bad, *[good] * (BARS - 1)])) == ["promise_miss_rate"]
    assert names(alarms((), [bad, *[good] * BARS])) == []


@pytest.mark.req("B19")
def test_overruns_raise_an_alarm_and_it_clears_at_half_of_the_limit():
    assert names(alarms((), [bar(tasks=100, late=11)])) == ["overrun_rate"]
    assert names(alarms((), [bar(tasks=100, late=8)])) == []
    assert names(alarms(["overrun_rate"], [bar(tasks=100, late=8)])) == ["overrun_rate"]
    assert names(alarms(["overrun_rate"], [bar(tasks=100, late=5)])) == []
    assert names(alarms(["overrun_rate"], [bar(tasks=1)])) == ["overrun_rate"], "too few to tell"
    assert names(alarms(["overrun_rate"], [bar()])) == []


@pytest.mark.req("B19")
def test_a_job_that_runs_for_a_whole_bar_in_silence_raises_an_alarm():
    running = {"a/1": 90, "a/2": 100, "a/3": 101, "a/4": 50}
    assert silent_jobs(running, heard=["a/4"], start_ms=100) == ("a/1", "a/2")
    found = alarms((), [bar(silent=("a/1", "a/2"))])
    assert names(found) == ["no_status_claims"]
    assert "a/1, a/2" in found[0].why
    assert alarms(["no_status_claims"], [bar(silent=("a/1",)), bar()]) == ()
