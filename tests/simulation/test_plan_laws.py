"""Histories that break the laws about plans."""

import pytest

from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, OWNER, RECOVERY
from tests.simulation.histories import AT_MS, KIND, History

CRON = {"type": "cron", "at": "*/10 * * * * *", "zone": "UTC", "missed": "all"}
OTHER = "c" * 64
TICK = 10_000


def planned(**trigger) -> History:
    """A plan by `s`, with ticks every ten seconds; `c` coordinates."""
    history = History()
    history.ledger.authority_model.coordinator = "c"
    body = {"kind": KIND, "name": "n", "manifest": {}, "trigger": {**CRON, **trigger}}
    history.control("plan.put", 1, "s", **body)
    return history


def derive(history: History, tick: int, *, at_ms=None, by="c", job="a" * 64, **how) -> None:
    derived = {"type": "tick", "tick_ms": AT_MS + tick}
    at_ms = tick + 5 if at_ms is None else at_ms
    history.add("schedule", at_ms, by=by, job=job, deps=[[1, "x"]], derived=derived, **how)


def test_a_tick_by_the_coordinator():
    history = planned()
    derive(history, TICK, honest=True)
    derive(history, 2 * TICK, honest=True, job=OTHER)
    assert not history.broken
    assert history.ledger.lanes[KIND, OTHER].called.author == "s"


def test_a_doubled_tick():
    history = planned()
    derive(history, TICK)
    derive(history, TICK, job=OTHER)
    assert history.laws_broken == {"derived_once"}


def test_a_tick_by_somebody_else():
    history = planned()
    derive(history, TICK, by="w")
    assert history.laws_broken == {"derived_once"}


@pytest.mark.parametrize("how", [{"wall_ms": AT_MS + 1}, {"commit": AT_MS + TICK - 500}])
def test_a_tick_before_its_time_by_either_clock(how):
    history = planned()
    derive(history, TICK, **how)
    assert history.laws_broken == {"derived_once"}


@pytest.mark.parametrize("missed, broken", [("all", {"ticks_in_order"}), ("last", set())])
def test_a_tick_that_an_honest_coordinator_left_out(missed, broken):
    history = planned(missed=missed)
    derive(history, TICK, honest=True)
    derive(history, 3 * TICK, honest=True, job=OTHER)
    assert history.laws_broken == broken


def test_a_job_that_was_derived_from_no_plan():
    history = planned()
    history.ledger.plans.clear()
    derive(history, TICK)
    assert history.laws_broken == {"authorised"}


def test_a_plan_by_somebody_without_the_right():
    history = History()
    history.found(OWNER, RECOVERY)
    body = {"kind": KIND, "name": "n", "manifest": {}, "trigger": CRON}
    history.control("plan.put", 1, ALICE.did, **body)
    assert history.laws_broken == {"put_by_right"}
    history.broken.clear()
    history.control("plan.put", 2, ALICE.did, Verdict.NO_CHAIN, **body)
    assert not history.broken


def test_a_tick_of_a_plan_whose_author_has_no_right():
    history = History()
    history.found(OWNER, RECOVERY)
    history.ledger.authority_model.coordinator = "c"
    body = {"kind": KIND, "name": "n", "manifest": {}, "trigger": CRON}
    history.control("plan.put", 1, ALICE.did, Verdict.NO_CHAIN, **body)
    history.add("schedule", TICK + 5, by="c", deps=[[2, "x"]], derived={"tick_ms": AT_MS + TICK})
    assert "authorised" in history.laws_broken
