"""Checkpoints on the log: which ops may name one, which the job keeps, what can be evicted."""

import pytest

from antiphon.core.families.jobs.columns import blobs
from antiphon.core.families.jobs.ops import MAX_REPLACED, Checkpoint, Progress
from antiphon.core.families.jobs.state import State
from antiphon.core.family import Evicted
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import LEASE_MS, Story


def saved(word):
    return Checkpoint(hash=digest(word.encode()), size=len(word))


def running(**rules):
    story = Story(**rules)
    story.schedule(CAROL)
    assert story.claim(ALICE, begin=True) is Verdict.OK
    return story


def renew(story, checkpoint=None, by=ALICE, **more):
    return story.claim(by, fence=story.fence, checkpoint=checkpoint, **more)


@pytest.mark.req("B15")
def test_a_job_keeps_its_last_checkpoint_and_lists_those_before():
    story = running()
    for word in "abc":
        assert renew(story, saved(word)) is Verdict.OK
    assert story.job.checkpoint == saved("c")
    assert story.job.replaced == (saved("a").hash, saved("b").hash)
    before = story.job
    assert renew(story, saved("c")) is Verdict.OK, "the same one again is only a renewal"
    assert (story.job.checkpoint, story.job.replaced) == (before.checkpoint, before.replaced)
    assert renew(story) is Verdict.OK, "a renewal without one keeps it"
    assert story.job.checkpoint == saved("c")
    assert renew(story, saved("a")) is Verdict.OK, "an earlier one again is needed again"
    assert story.job.replaced == (saved("b").hash, saved("c").hash)


@pytest.mark.req("B14", "B15")
def test_a_first_claim_names_neither_a_checkpoint_nor_beats():
    story = Story()
    story.schedule()
    assert story.claim(ALICE, checkpoint=saved("a")) is Verdict.CHECKPOINT
    assert story.claim(ALICE, beats_left=3) is Verdict.CHECKPOINT
    assert story.claim(ALICE, progress=Progress(permille=400)) is Verdict.CHECKPOINT
    assert story.claim(ALICE, begin=True) is Verdict.OK
    assert renew(story, beats_left=3) is Verdict.OK


@pytest.mark.req("B15")
def test_only_the_tenure_that_runs_can_name_one():
    story = running()
    fence = story.fence
    assert story.claim(BOB, fence=fence, checkpoint=saved("b")) is Verdict.FENCE
    assert story.expire(at=LEASE_MS * 3) is Verdict.OK
    assert story.claim(ALICE, fence=fence, checkpoint=saved("b")) is Verdict.FENCE
    assert story.job.checkpoint is None


@pytest.mark.req("B15")
@pytest.mark.parametrize("end", ["expire", "error", "overrun", "later", "drain"])
def test_it_stays_however_a_tenure_ends(end):
    story = running()
    assert renew(story, saved("a")) is Verdict.OK
    if end == "expire":
        assert story.expire(at=LEASE_MS * 3) is Verdict.OK
        named = saved("a")
    else:
        named = saved("b")
        assert story.give_back(reason=end, checkpoint=named) is Verdict.OK
    assert story.job.checkpoint == named
    assert story.claim(BOB, begin=True) is Verdict.OK
    assert story.job.checkpoint == named


def test_each_sort_of_yield_has_a_count_of_its_own():
    story = running(postponed_max=1)
    for reason in ("later", "overrun", "drain"):
        assert story.give_back(reason=reason) is Verdict.OK
        assert story.claim(begin=True) is Verdict.OK
    job = story.job
    assert (job.attempts, job.yields, job.postponed) == (1, 1, 1)
    assert story.give_back(reason="later") is Verdict.OK
    assert (story.job.state, story.job.outcome) == (State.FAILED, "exhausted")


def test_a_late_op_of_a_job_that_asked_for_another_try_has_an_old_fence():
    story = running()
    fence = story.fence
    assert story.give_back(reason="later") is Verdict.OK
    assert story.complete(fence=fence) is Verdict.FENCE


# --- eviction -----------------------------------------------------------------------------------


@pytest.mark.req("B15")
def test_replaced_ones_can_be_evicted_while_the_job_runs_and_nothing_becomes_stale():
    story = running()
    for word in "abc":
        renew(story, saved(word))
    tail = story.lane.job_tail
    assert story.evict(saved("a").hash) is Verdict.OK
    assert story.evict(saved("a").hash) is Verdict.ALREADY
    assert story.evict(saved("c").hash) is Verdict.NOT_ENDED, "the newest is needed"
    assert story.evict(digest(b"other")) is Verdict.NOT_ENDED
    assert story.job.replaced == (saved("b").hash,)
    needs, gone = blobs(story.job)
    assert needs == (saved("b").hash, saved("c").hash)
    assert gone == (Evicted(saved("a").hash, "checkpoint"),)
    assert tail < story.lane.job_tail
    assert renew(story, saved("d")) is Verdict.OK


@pytest.mark.req("B15")
def test_too_many_that_nobody_evicts_are_refused_and_the_job_goes_on():
    story = running()
    for number in range(MAX_REPLACED + 1):
        assert renew(story, saved(str(number))) is Verdict.OK
    assert renew(story, saved("more")) is Verdict.CHECKPOINT
    assert renew(story) is Verdict.OK
    assert story.evict(saved("7").hash) is Verdict.OK
    assert renew(story, saved("more")) is Verdict.OK
    assert story.complete() is Verdict.OK


@pytest.mark.req("B15")
def test_at_the_end_all_of_them_are_evicted_as_what_they_were_named():
    story = running()
    output = Output(name="out", stored=Stored(hash=saved("out").hash, size=3))
    for word in ("a", "b", "out", "c"):
        renew(story, saved(word))
    story.evict(saved("a").hash)
    assert story.complete(outputs=(output,)) is Verdict.OK
    job = story.job
    assert set(job.stored) == {saved(word).hash for word in ("b", "c", "out")}
    assert job.checkpoint is None
    for word in ("b", "c", "out"):
        assert story.evict(saved(word).hash, OWNER) is Verdict.OK
    assert story.evict(saved("a").hash) is Verdict.ALREADY
    needs, gone = blobs(story.job)
    assert needs == ()
    assert dict(gone) == {
        saved("a").hash: "checkpoint",
        saved("b").hash: "checkpoint",
        saved("c").hash: "checkpoint",
        saved("out").hash: "output",
    }
