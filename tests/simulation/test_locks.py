"""Locks in a simulated cluster: one holder at a time, fences that rise, waits that end."""

from types import SimpleNamespace

import pytest

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from simulator.checks.law_state import Committed, LaneFacts, LawState
from simulator.checks.plain_record import PlainRecord
from simulator.locks.lock_agents import locks_as_guests
from simulator.locks.lock_laws import Holder, LockLedger, Worker
from simulator.seeds.seed_plan import Plan
from simulator.seeds.world import run
from tests.examples import size

TTL_MS = 6_000


@pytest.mark.long
@pytest.mark.req("S4", "S5", "S6", "S7")
@pytest.mark.parametrize("seed", [0, 1], ids=["open", "chained"])
def test_locks_are_simulated_with_faults(seed):
    guests, law = locks_as_guests()
    span_s = size(100.0, soak=1800.0)
    plan = Plan(seed=seed, chaos_s=span_s, jobs_per_hour=20.0, faults_per_hour=600.0)
    outcome = run(plan, guests)
    assert [f"{one.law}: {one.what}" for one in outcome.violations] == []
    assert law.begun > size(15, soak=200), "enough happened to speak of"
    assert law.renewed > law.begun
    assert law.passed
    assert law.expired, "a hold ended with its time, and another began"
    assert sum(outcome.faults.values()) > 5


class History:
    """Records about one lock, with the verdict that a broken system gave."""

    def __init__(self):
        self.law = LockLedger()
        self.referee = SimpleNamespace(accused=[])
        self.referee.accuse = lambda law, _what: self.referee.accused.append(law)
        self.law.cluster = SimpleNamespace(true_ms=0, referee=self.referee)
        self.ledger = LawState()
        self.seq = 0
        self.broken = set()

    def add(self, what, at_ms, by="a", *, verdict=Verdict.OK, commit_ms=None, **body):
        """One record; returns the fence of what it began."""
        self.seq += 1
        commit_ms = at_ms if commit_ms is None else commit_ms
        self.law.cluster.true_ms = commit_ms
        whole = {"kind": "team", "key": "file", "agent": "main"}
        whole |= {"ttl_ms": TTL_MS} if what == "take" else {}
        fact = PlainRecord(f"lock.{what}", by, at_ms, 0, 0, whole | body, b"", "")
        record = Record(self.seq, commit_ms * 1_000_000, "", b"")
        now = Committed(record, fact, None, verdict, 0, True)
        for law in self.law.laws:
            if list(law(self.ledger, LaneFacts(), now, fact)):
                self.broken.add(law.__name__)
        return fact.own_fence

    def works(self, by, fence, *, is_sure=True):
        """Somebody works under a fence."""
        self.law.workers.append(Worker(Holder(by, "main"), "file", fence, lambda: is_sure))


def to(node):
    return {"pass": {"node": node, "agent": "main", "ttl_ms": TTL_MS}}


def test_a_history_without_faults_breaks_no_law():
    history = History()
    fence = history.add("take", 0)
    history.works("a", fence, is_sure=False)
    history.add("take", 2_000, fence=fence)
    history.add("take", 5_000, "b", verdict=Verdict.LOCKED)
    second = history.add("take", 8_001, "b")
    third = history.add("release", 9_000, "b", fence=second, **to("c"))
    history.add("release", 10_000, "c", fence=third)
    history.add("take", 10_001, "a")
    history.add("break", 10_002, "owner")
    assert history.broken == set()
    assert (history.law.begun, history.law.expired, history.law.passed) == (4, 1, 1)


def taken_while_held(history):
    history.add("take", 0)
    history.add("take", 5_999, "b")


def taken_by_its_takers_clock_alone(history):
    history.add("take", 0)
    history.add("take", 6_500, "b", commit_ms=5_900)


def taken_by_the_logs_clock_alone(history):
    history.add("take", 0)
    history.add("take", 5_900, "b", commit_ms=6_500)


def renewed_too_late(history):
    fence = history.add("take", 0)
    history.add("take", 6_001, fence=fence)


def renewed_for_less_than_was_left(history):
    fence = history.add("take", 0)
    history.add("take", 100, fence=fence, ttl_ms=5_000)


def released_by_another(history):
    fence = history.add("take", 0)
    history.add("release", 100, "b", fence=fence)


def passed_on_by_another_agent_of_the_node(history):
    fence = history.add("take", 0)
    history.add("release", 100, agent="second", fence=fence, **to("b"))


def an_old_fence_was_good_enough(history):
    old = history.add("take", 0)
    history.add("take", 6_001)
    history.add("take", 6_002, fence=old)


def the_fence_stayed_when_it_was_passed_on(history):
    fence = history.add("take", 0)
    history.add("release", 100, fence=fence, **to("b"))
    history.add("take", 200, "b", fence=fence)


def a_fence_went_back(history):
    history.add("take", 10_000)
    history.add("break", 10_001)
    history.add("take", 9_000, "b")


def refused_because_of_nobody(history):
    history.add("take", 0)
    history.add("take", 6_001, "b", verdict=Verdict.LOCKED)


def a_holder_went_on(history):
    history.works("a", history.add("take", 0))
    history.add("take", 6_001, "b")


@pytest.mark.parametrize(
    "story, law",
    [
        (taken_while_held, "one_holder"),
        (taken_by_its_takers_clock_alone, "one_holder"),
        (taken_by_the_logs_clock_alone, "one_holder"),
        (renewed_too_late, "one_holder"),
        (renewed_for_less_than_was_left, "one_holder"),
        (released_by_another, "one_holder"),
        (passed_on_by_another_agent_of_the_node, "one_holder"),
        (an_old_fence_was_good_enough, "lock_fences_rise"),
        (the_fence_stayed_when_it_was_passed_on, "lock_fences_rise"),
        (a_fence_went_back, "lock_fences_rise"),
        (refused_because_of_nobody, "truly_locked"),
        (a_holder_went_on, "stops_in_time"),
    ],
)
def test_a_history_that_breaks_a_law(story, law):
    history = History()
    story(history)
    assert history.broken == {law}


def test_nobody_stores_anything_under_anothers_fence_or_a_former_one():
    history = History()
    first, a, b = history.add("take", 0), Holder("a", "main"), Holder("b", "main")
    assert history.law.store("file", first, a)
    second = history.add("take", 6_001, "b")
    assert history.law.store("file", second, b)
    assert not history.law.store("file", first, a), "as a disk that compares fences"
    assert history.referee.accused == []
    history.law.store("file", second, a)
    assert set(history.referee.accused) == {"one_fence_one_holder"}
