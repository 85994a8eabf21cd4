"""Pauses: nobody begins what is paused, and whoever holds it goes on (spec §7.3)."""

import pytest

from antiphon.core.authority.control import Pause
from antiphon.core.families.mesh.ops import MeshPause, PauseBody
from antiphon.core.families.mesh.table import MAX_PAUSES
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import Ledger, Story

OK, PAUSED = Verdict.OK, Verdict.PAUSED


def pause(ledger: Ledger, by=OWNER, *, is_paused: bool = True, at=None, **about) -> Verdict:
    how = {} if at is None else {"at": at}
    return ledger.put(MeshPause, PauseBody(is_paused=is_paused, **about), by, **how)


@pytest.mark.parametrize(
    "about, kind, how",
    [
        ({}, "render", {}),
        ({"kind": "render"}, "render", {}),
        ({"kind": "render"}, "render.video", {}),
        ({"label": "gpu"}, "render", {"concurrency": "gpu"}),
        ({"kind": "render", "label": "gpu"}, "render", {"concurrency": "gpu"}),
    ],
)
def test_nobody_begins_what_is_paused_until_it_is_resumed(about, kind, how):
    story = Story(kind=kind)
    assert story.schedule(**how) is OK
    if how:
        assert story.offer() is OK
    assert pause(story.ledger, **about) is OK
    assert story.claim(ALICE) is PAUSED
    assert story.claim(OWNER) is PAUSED
    assert pause(story.ledger, is_paused=False, **about) is OK
    assert story.claim(ALICE) is OK


@pytest.mark.parametrize(
    "about",
    [
        {"kind": "rend"},
        {"kind": "render.video"},
        {"label": "gpu"},
        {"plan": "nightly"},
        {"kind": "render", "label": "gpu"},
    ],
)
def test_a_pause_is_about_jobs_that_have_all_of_what_it_says(about):
    story = Story()
    story.schedule()
    assert pause(story.ledger, **about) is OK
    assert story.claim(ALICE) is OK


def test_a_pause_of_a_plan_is_about_the_jobs_of_plans_of_that_name():
    one = Pause(kind=None, label=None, plan="nightly", by="", since_ms=0, reason="")
    assert one.covers("render", "", "nightly")
    assert not one.covers("render", "", "weekly")
    assert not one.covers("render", "", "")


def test_whoever_holds_a_job_renews_starts_and_completes_it():
    story = Story()
    story.schedule()
    assert story.claim(ALICE) is OK
    assert pause(story.ledger) is OK
    assert story.start(ALICE) is OK
    assert story.claim(ALICE, fence=story.fence) is OK
    assert story.complete(ALICE) is OK


def test_a_job_that_is_given_back_is_not_begun_again_while_it_is_paused():
    story = Story()
    story.schedule()
    story.claim(ALICE, begin=True)
    assert pause(story.ledger, CAROL) is Verdict.NOT_OWNER
    story.ledger.coordinator(CAROL)
    assert pause(story.ledger, CAROL, kind="render") is OK
    assert story.give_back(ALICE, reason="drain") is OK
    assert story.claim(BOB) is PAUSED
    assert story.cancel() is OK


def test_owner_and_coordinator_pause_and_resume_each_others_and_nobody_else_does():
    ledger = Ledger()
    assert pause(ledger, BOB) is Verdict.NOT_OWNER
    assert pause(ledger, OWNER, kind="a", reason="full") is OK
    assert ledger.history.current.pauses[0].reason == "full"
    ledger.coordinator(CAROL)
    assert pause(ledger, CAROL, kind="a") is Verdict.ALREADY
    assert pause(ledger, CAROL, kind="a", is_paused=False) is OK
    assert pause(ledger, CAROL, kind="a", is_paused=False) is Verdict.ALREADY
    assert ledger.history.current.pauses == ()


def test_an_older_op_about_pauses_counts_for_nothing_and_the_owners_other_ops_follow_none():
    ledger = Ledger()
    ledger.coordinator(CAROL, at=1_000)
    assert pause(ledger, CAROL, kind="a", at=5_000) is OK
    assert pause(ledger, OWNER, kind="a", is_paused=False, at=4_000) is Verdict.STALE
    assert ledger.route("render", BOB, at=4_500) is OK


def test_there_are_few_pauses_at_the_same_time():
    ledger = Ledger()
    for number in range(MAX_PAUSES):
        assert pause(ledger, label=f"l{number}") is OK
    assert pause(ledger, label="one-more") is Verdict.PAUSES
    assert pause(ledger, label="l3", is_paused=False) is OK
    assert pause(ledger, label="one-more") is OK
