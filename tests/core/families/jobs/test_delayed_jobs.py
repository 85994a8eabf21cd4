"""Delayed jobs: when their time has come, and how long they may wait then (spec §7.3)."""

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Story

OK = Verdict.OK
HORIZON = Rules().horizon_ms


def called(*, how=None, rules=None, **fields):
    story = Story(**(rules or {}))
    assert story.schedule(how={"at": 0, **(how or {})}, **fields) is OK
    return story


@pytest.mark.parametrize(
    "at, stamp, verdict",
    [(39_999, 39_999, Verdict.EARLY), (40_000, 39_999, Verdict.EARLY),
     (39_999, 40_000, Verdict.EARLY), (40_000, 40_000, OK), (41_000, 40_000, OK)],
)  # fmt: skip
@pytest.mark.parametrize("by", [BOB, OWNER], ids=["anyone", "coordinator"])
@pytest.mark.parametrize("counted", [False, True])
def test_a_delayed_job_is_offered_once_both_clocks_have_reached_its_time(
    counted, by, at, stamp, verdict
):
    story = called(not_before=T0 + 40_000, concurrency="gpu" if counted else None)
    assert story.claim(ALICE, at=30_000) is Verdict.WAITING
    if counted and by is BOB:
        verdict = Verdict.NOT_COORDINATOR
    assert story.offer(by, at=at, stamp=stamp) is verdict
    assert story.state == ("pending" if verdict is OK else "waiting")
    claimed = story.claim(ALICE, at=50_000)
    assert claimed is (OK if verdict is OK else Verdict.WAITING)


def test_a_job_whose_time_has_passed_already_is_offered_like_any_other():
    story = called(not_before=0)
    assert story.state == "waiting"
    assert story.offer(BOB) is OK


def test_a_delayed_job_that_is_pending_again_needs_no_second_offer():
    story = called(not_before=T0 + 5_000)
    assert story.offer(BOB, at=5_000) is OK
    assert story.claim(ALICE, at=6_000) is OK
    assert story.give_back(ALICE, at=7_000) is OK
    assert story.claim(CAROL, at=8_000) is OK


def test_the_window_to_start_of_a_delayed_job_begins_with_its_time():
    story = called(rules={"start_by_ms": 1_000}, not_before=T0 + 40_000, how={"at": 500})
    assert story.job.start_by_ms == T0 + 41_000
    assert story.expire(fence=None, at=40_999) is Verdict.EARLY
    assert story.offer(BOB, at=40_000) is OK
    assert story.claim(ALICE, at=41_000) is OK
    assert story.give_back(ALICE, at=42_000, retry_after_ms=500) is OK
    assert story.job.start_by_ms == T0 + 43_500, "a retry has the window, without the delay"


@pytest.mark.parametrize(
    "not_before, fields, verdict",
    [
        (HORIZON, {}, OK),
        (HORIZON + 1, {}, Verdict.DELAY),
        (40_000, {"start_by": T0 + 40_001}, OK),
        (40_000, {"start_by": T0 + 40_000}, Verdict.TOO_LATE),
        (40_000, {"start_by": T0 + 39_000}, Verdict.TOO_LATE),
    ],
)
def test_a_delay_ends_within_the_horizon_and_before_the_latest_time_to_start(
    not_before, fields, verdict
):
    story = Story()
    assert story.schedule(not_before=T0 + not_before, how={"at": 0}, **fields) is verdict


def test_a_wait_for_a_worker_ends_within_the_horizon_after_the_delay():
    story = called(not_before=T0 + HORIZON, start_by=T0 + 10 * HORIZON, how={"at": 0})
    assert story.job.start_by_ms == T0 + 2 * HORIZON
