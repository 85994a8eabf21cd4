"""Which plans run, and how many jobs are derived for each party."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.derivations import plan_selection
from antiphon.core.derivations.derived_use import WINDOW_MS, DerivedUse, cost_of
from antiphon.core.derivations.plan_selection import selected

pytestmark = pytest.mark.req("P13")


def test_of_each_party_the_oldest_are_selected():
    standing = [("a", 5), ("b", 4), ("a", 1), ("a", 3), ("b", 2)]
    assert selected(standing, each=2) == {1, 2, 3, 4}
    assert selected(standing, each=1) == {1, 2}
    assert selected([], each=1) == set()


def test_where_there_is_room_for_few_every_party_has_its_oldest_first(monkeypatch):
    monkeypatch.setattr(plan_selection, "MOST_PLANS", 4)
    flood = [("a", seq) for seq in range(100)]
    assert selected([*flood, ("b", 200), ("b", 201), ("c", 300)], each=50) == {0, 1, 200, 300}


@given(
    mine=st.integers(0, 9), flood=st.lists(st.sampled_from("bcd"), max_size=60), each=st.integers(1)
)
def test_what_runs_of_a_party_does_not_depend_on_the_others(mine, flood, each):
    own = [("a", 2 * n) for n in range(mine)]
    others = [(party, 2 * n + 1) for n, party in enumerate(flood)]
    alone = selected(own, each=each)
    assert {seq for seq in selected([*own, *others], each=each) if seq % 2 == 0} == alone


def test_room_is_what_the_last_minute_left():
    use = DerivedUse()
    for at_ms in (0, 1, 2):
        use.note("a", at_ms, 1)
    assert [use.room(party, 1, rate=5, now_ms=2) for party in "ab"] == [2, 5]
    assert use.room("a", 1, rate=5, now_ms=2, taken=2) == 0
    assert use.room("a", 1, rate=5, now_ms=WINDOW_MS - 1) == 2
    assert use.room("a", 1, rate=5, now_ms=WINDOW_MS) == 3
    assert use.room("a", 1, rate=5, now_ms=WINDOW_MS + 2) == 5


def test_a_job_counts_with_its_replicas_and_one_that_exceeds_the_rate_goes_alone():
    assert [cost_of(replicas) for replicas in (None, 0, 3)] == [1, 1, 4]
    use = DerivedUse()
    assert use.room("a", 4, rate=9, now_ms=0) == 2
    assert use.room("a", 10, rate=9, now_ms=0) == 1
    assert use.room("a", 10, rate=9, now_ms=0, taken=1) == 0
    use.note("a", 0, 10)
    assert use.room("a", 1, rate=9, now_ms=0) == 0
