"""Budgets during a run: which cap is exceeded, when, in which words, and when to look next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.cost.job_cost import Spent
from antiphon.core.cost.rates import Rate, Rates
from antiphon.core.cost.usage import Reported, Resources
from antiphon.core.policy.budget_watch import SHORTEST_MS, BeatCount, BudgetWatch
from antiphon.core.tempo.budget import Budget, read_budget
from antiphon.core.tempo.meter import Meter
from antiphon.errors import Malformed

pytestmark = pytest.mark.req("B21")

METER = Meter()  # beats of 4 s, bars of 8
BEAT, BAR = METER.beat_ms, METER.bar_ms
START = 10 * BAR + 3 * BEAT
NONE, UNKNOWN = Spent(), Resources()
RATES = Rates(
    currency="EUR",
    role_rate_bu={"default": "1"},
    cpu_sec=Rate(rate="0.5", source="tco"),
)


def watching(earlier: Spent = NONE, **budget) -> BudgetWatch:
    return BudgetWatch(
        read_budget(budget),
        kind="x",
        earlier=earlier,
        rates=RATES,
        start_ms=START,
        meter=METER,
    )


def looks(watch: BudgetWatch, after_ms: int, used: Resources = UNKNOWN, meter: Meter = METER):
    beats = after_ms * 1000 // meter.beat_ms
    return watch.look(START + after_ms, meter, beats_milli=beats, used=used)


def test_the_last_beat_may_be_used_to_its_end():
    watch = watching(max_bu=2)
    assert looks(watch, 2 * BEAT - 1) is None
    over = looks(watch, 2 * BEAT)
    assert over.cap == "max_bu"
    assert over.message == (
        "it used 2 beats, and may use 2 (max_bu). Submit it again with a larger max_bu in its"
        " budget, or let it do less"
    )


def test_beats_of_earlier_attempts_count():
    watch = watching(Spent(beats_milli=1_500), max_bu=2)
    assert looks(watch, BEAT // 2 - 1) is None
    assert "2 beats in all its attempts" in looks(watch, BEAT // 2).message


def test_hard_end_counts_downbeats_from_the_start():
    watch = watching(hard_end="bar+2")
    left_ms = 5 * BEAT  # it starts on the fourth beat of eight
    assert looks(watch, left_ms) is None, "the first downbeat"
    assert looks(watch, left_ms + BAR - 1) is None
    over = looks(watch, left_ms + BAR)
    assert (over.cap, over.words) == ("hard_end", "it was still running at bar+2, its end")


def test_hard_end_counts_downbeats_also_while_the_tempo_changes():
    watch = watching(hard_end="bar+2")
    left_ms = 5 * BEAT
    faster = Meter(bpm=20, anchor_ms=START + left_ms)  # from the next downbeat on
    assert looks(watch, left_ms, meter=faster) is None
    assert looks(watch, left_ms + faster.bar_ms - 1, meter=faster) is None
    assert looks(watch, left_ms + faster.bar_ms, meter=faster).cap == "hard_end"


def test_a_ceiling_holds_for_each_beat_alone():
    watch = watching(per_bu={"cpu_sec": 2.5})
    assert looks(watch, BEAT - 1, Resources(cpu_ms=2_500)) is None
    assert looks(watch, BEAT, Resources(cpu_ms=2_500)) is None
    assert looks(watch, BEAT + 10, Resources(cpu_ms=5_000)) is None, "another beat"
    over = looks(watch, BEAT + 20, Resources(cpu_ms=5_001))
    assert over.cap == "per_bu.cpu_sec"
    assert over.words == "it used 2.501 cpu_sec within one beat, and may use 2.5 in each"


def test_a_look_that_comes_late_allows_as_much_as_the_beats_that_passed():
    late = 3 * BEAT
    assert looks(watching(per_bu={"cpu_sec": 1}), late, Resources(cpu_ms=3_000)) is None
    over = looks(watching(per_bu={"cpu_sec": 1}), late, Resources(cpu_ms=3_001))
    assert "within 3 beats" in over.words


def test_a_ceiling_on_a_device_class_is_on_that_class_alone():
    watch = watching(per_bu={"gpu_sec": {"a100": 1}})
    assert looks(watch, 10, Resources(reported=Reported(gpu_ms={"h100": 9_000}))) is None
    over = looks(watch, 20, Resources(reported=Reported(gpu_ms={"a100": 1_001})))
    assert over.cap == "per_bu.gpu_sec[a100]"


def test_what_is_not_measured_exceeds_no_ceiling():
    assert looks(watching(per_bu={"cpu_sec": 0.001, "mem_gbs": 0.001}), 10) is None


def test_the_cost_is_that_of_all_attempts():
    earlier = Spent(beats_milli=1_000, currency="EUR", amount_nano=10**9)
    watch = watching(earlier, max_cost=2.5)
    assert looks(watch, BEAT, Resources(cpu_ms=1_000)) is None
    over = looks(watch, BEAT, Resources(cpu_ms=1_002))
    assert over.words == "it cost 2.501 EUR, and may cost 2.5"


def test_without_a_cap_nothing_is_ever_exceeded():
    watch = watching(charge_to="team-a")
    assert looks(watch, 10**9, Resources(cpu_ms=10**12)) is None
    assert not watch.needs_usage


# --- when to look ---------------------------------------------------------------------------------


def test_a_budget_of_time_alone_is_looked_at_when_its_time_is_up():
    watch = watching(max_bu=3, hard_end="bar+1")
    assert watch.next_look_ms(START, METER, beats_milli=0) == 3 * BEAT
    watch = watching(max_bu=30, hard_end="bar+1")
    assert watch.next_look_ms(START, METER, beats_milli=0) == 5 * BEAT


def test_resources_are_looked_at_several_times_a_beat_and_at_its_end():
    watch = watching(per_bu={"cpu_sec": 1})
    assert watch.next_look_ms(START, METER, beats_milli=0) == BEAT // 8
    assert watch.next_look_ms(START + BEAT - 100, METER, beats_milli=0) == 100
    assert watch.next_look_ms(START + BEAT - 1, METER, beats_milli=0) == SHORTEST_MS


@given(st.integers(1, 50), st.integers(0, 3_000))
def test_whoever_looks_when_asked_to_ends_it_within_a_beat(max_bu, offset_ms):
    start, now = START + offset_ms, START + offset_ms
    budget = Budget(max_bu=max_bu)
    watch = BudgetWatch(budget, kind="x", earlier=Spent(), rates=None, start_ms=start, meter=METER)
    for _ in range(200):
        beats = (now - start) * 1000 // BEAT
        if watch.look(now, METER, beats_milli=beats, used=Resources()):
            break
        now += watch.next_look_ms(now, METER, beats_milli=beats)
    assert max_bu * BEAT <= now - start <= max_bu * BEAT + 4


# --- counting beats -------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from([2_500, 4_000, 10_000]))))
def test_beats_add_up_while_the_tempo_changes(steps):
    count, elapsed, exact = BeatCount(), 0, 0.0
    for step_ms, beat_ms in steps:
        elapsed += step_ms
        exact += step_ms / beat_ms
        count.count(elapsed, beat_ms)
    assert count.milli == pytest.approx(exact * 1000, abs=1.1)


def test_a_clock_that_stands_still_counts_nothing():
    count = BeatCount()
    for _ in range(3):
        count.count(2_000, 4_000)
    assert count.milli == 500


# --- as people write it ---------------------------------------------------------------------------


def test_a_budget_is_read_with_the_keys_that_people_know():
    found = read_budget(
        {
            "budget": {
                "max_bu": 8,
                "phase_caps": {"plan": 2, "work": 4, "review": 2},
                "wait_caps": {"help": 2, "io": 1},
                "hard_end": "bar+2",
                "charge_to": "team-a",
                "max_cost": "0.25",
                "per_bu": {"cpu_sec": 2.5, "gpu_sec": {"a100": 1}, "mem_gbs": "0.0001"},
            }
        }
    )
    assert (found.max_bu, found.bars, found.charge_to, found.max_cost) == (8, 2, "team-a", 250)
    assert found.per_bu.cpu_sec == 2_500
    assert found.per_bu.gpu_sec == (("a100", 1_000),)
    assert found.per_bu.mem_gbs == 1, "nothing is rounded to no ceiling at all"


@pytest.mark.parametrize(
    "fields",
    [
        {"max_bu": 0},
        {"max_tokens": 5},
        {"hard_end": "4"},
        {"per_bu": {"cpu_sec": -1}},
        {"per_bu": {"storage_gbh": 1}},
        {"budget": [1]},
    ],
)
def test_what_is_no_budget_is_refused(fields):
    with pytest.raises(Malformed):
        read_budget(fields)
