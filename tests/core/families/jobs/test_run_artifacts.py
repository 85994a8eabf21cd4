"""What runs store before the end of their job: who may, in which order, how much, how long."""

import pytest

from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.columns import blobs
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.families.jobs.state import RunArtifacts, State
from antiphon.core.family import Evicted
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import LEASE_MS, Story, open_stored

LARGE = {"digest": digest(b"large"), "size": 100_000}


def running(**rules):
    story = Story(**rules)
    story.schedule(CAROL)
    assert story.claim(ALICE, begin=True) is Verdict.OK
    return story


def kept_by(story):
    return blobs(story.job)[0]


@pytest.mark.parametrize("sort", ["step", "part", "snapshot", "escalation"])
def test_each_sort_is_numbered_for_itself_and_none_is_left_out_or_repeated(sort):
    story = running()
    assert story.artifact(as_="step") is Verdict.OK
    first = count_of(story.job, sort)
    assert story.artifact(as_=sort, n=first + 1) is Verdict.ARTIFACT
    assert story.artifact(as_=sort, n=first) is Verdict.OK
    assert story.artifact(as_=sort, n=first) is Verdict.ARTIFACT
    assert count_of(story.job, sort) == first + 1


def test_the_next_tenure_goes_on_with_the_numbers_of_the_last():
    story = running()
    old = story.fence
    assert story.artifact() is Verdict.OK
    assert story.expire(at=LEASE_MS * 3) is Verdict.OK
    assert story.artifact(fence=old) is Verdict.FENCE
    assert story.claim(BOB, begin=True) is Verdict.OK
    assert story.artifact(ALICE, fence=old) is Verdict.FENCE
    assert story.artifact(ALICE) is Verdict.NOT_CLAIMER
    assert story.artifact(BOB) is Verdict.OK
    assert count_of(story.job, "step") == 2


@pytest.mark.parametrize(
    "content",
    [
        {"value": None},
        {"value": "1", **LARGE},
        {"value": None, "digest": LARGE["digest"]},
        {"value": None, "size": 3},
        {"value": "1", "size": 3},
    ],
)
def test_it_has_its_content_in_one_of_two_forms(content):
    story = running()
    assert story.artifact(**content) is Verdict.ARTIFACT
    assert story.job.artifacts is None


def test_there_are_so_many_and_no_more(monkeypatch):
    monkeypatch.setitem(ops.MAX_ARTIFACTS, "step", 3)
    story = running()
    for _ in range(3):
        assert story.artifact() is Verdict.OK
    assert story.artifact() is Verdict.ARTIFACT
    assert story.artifact(as_="part") is Verdict.OK


def test_their_texts_take_so_much_of_the_log_and_no_more(monkeypatch):
    monkeypatch.setattr(ops, "MAX_ARTIFACT_TEXTS", 10)
    story = running()
    assert story.artifact(value="ä" * 5) is Verdict.OK, "bytes are counted, not characters"
    assert story.artifact(value="1") is Verdict.ARTIFACT
    assert story.artifact(**LARGE) is Verdict.OK, "what is stored elsewhere takes none of it"
    assert story.job.artifacts.text_bytes == 10


def test_so_many_are_stored_outside_the_log_and_no_more(monkeypatch):
    monkeypatch.setattr(ops, "MAX_ARTIFACTS_OUTSIDE", 1)
    story = running()
    assert story.artifact(**LARGE) is Verdict.OK
    assert story.artifact(**LARGE) is Verdict.OK, "the same bytes are kept once"
    assert story.artifact(digest=digest(b"else"), size=4) is Verdict.ARTIFACT


def test_what_is_stored_outside_is_kept_until_the_end_and_then_evicted_with_the_outputs():
    story = running()
    assert story.artifact(**LARGE) is Verdict.OK
    assert kept_by(story) == (LARGE["digest"],)
    assert story.evict(LARGE["digest"]) is Verdict.NOT_ENDED
    assert story.complete() is Verdict.OK
    assert kept_by(story) == (LARGE["digest"],)
    assert story.job.artifacts == RunArtifacts(steps=1)
    assert story.evict(LARGE["digest"], OWNER) is Verdict.OK
    # Any worker can name any bytes: they are removed only if they are what a run stores.
    assert blobs(story.job) == ((), (Evicted(LARGE["digest"], "checkpoint"),))


def test_storing_prolongs_no_lease_and_starts_nothing():
    story = Story()
    story.schedule()
    assert story.claim(ALICE) is Verdict.OK
    before = story.job.deadline_ms
    assert story.artifact() is Verdict.OK
    assert (story.job.deadline_ms, story.job.state) == (before, State.CLAIMED)


def test_its_words_say_what_was_stored():
    story = running()
    story.artifact(name="fetch a", value="äb")
    story.artifact(as_="part", name="rows", **LARGE)
    told = [open_stored(story.ledger.mesh, one).op.words() for one in story.ledger.log[-2:]]
    assert told == [
        "stored the step 'fetch a', 3 bytes",
        "stored the part 'rows', 100,000 bytes",
    ]
