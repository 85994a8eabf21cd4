"""Jobs that wait for others, for their results, or for room: what the log takes (spec §7.3)."""

import pytest
from msgspec.structs import replace

from antiphon.core.authority.rules import Limit, Rules, contradiction
from antiphon.core.families.jobs.ops import Result
from antiphon.core.manifest import ResultInput, job_id
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, OWNER
from tests.core.ledger import T0, Story

OK = Verdict.OK
OTHER = ("ci.build", "a" * 64)
CHILDREN = (("ci.part", "b" * 64), ("ci.part", "c" * 64))
STORED = Result(hash=digest(b"x"), size=1)


def reading(count=1, **fields):
    """A job that reads results of others."""
    story = Story()
    inputs = tuple(ResultInput(of=OTHER, name=f"/args/{at}") for at in range(count))
    story.manifest = replace(story.manifest, inputs=inputs)
    story.id = job_id(story.manifest)
    assert story.schedule(**fields) is OK
    return story


def begun():
    story = Story()
    assert story.schedule() is OK
    assert story.claim(ALICE, begin=True) is OK
    return story


@pytest.mark.parametrize("fields", [{"after": (OTHER,)}, {"concurrency": "gpu"}])
def test_only_the_coordinator_ends_a_wait_for_other_jobs_or_for_room(fields):
    story = Story()
    assert story.schedule(**fields) is OK
    assert story.state == "waiting"
    assert story.claim(ALICE) is Verdict.WAITING
    assert story.offer(BOB) is Verdict.NOT_COORDINATOR
    assert story.offer(OWNER) is OK
    assert story.claim(ALICE) is OK


@pytest.mark.parametrize(
    "results, verdict",
    [
        ((), Verdict.RESULTS),
        ((Result(text="1"),), Verdict.RESULTS),
        ((Result(text="1"), STORED, STORED), Verdict.RESULTS),
        ((Result(text="1"), Result()), Verdict.RESULTS),
        ((Result(text="1"), Result(hash=STORED.hash)), Verdict.RESULTS),
        ((Result(text="1"), replace(STORED, text="x")), Verdict.RESULTS),
        ((Result(text="1"), Result(outcome="failed")), Verdict.RESULTS),
        ((Result(text="1"), STORED), OK),
    ],
)
def test_an_offer_carries_exactly_the_results_that_the_job_reads(results, verdict):
    story = reading(2)
    assert story.offer(results=results) is verdict
    if verdict is OK:
        assert story.job.results == results
        assert story.job.reads == (STORED.hash,), "kept for as long as the job needs it"
        assert story.offer(results=results) is Verdict.RESULTS, "an announcement has none"
        assert story.offer() is OK
        assert story.cancel() is OK
        assert story.job.results == story.job.reads == ()
        assert story.job.stored == (STORED.hash,), "evicted in time like its own outputs"
        assert story.evict(STORED.hash) is OK


def test_a_tenure_ends_to_wait_for_other_jobs_and_the_next_one_gets_their_results():
    story = begun()
    fence = story.fence
    assert story.give_back(ALICE, reason="after", after=CHILDREN) is OK
    assert (story.state, story.job.attempts, story.job.yields) == ("waiting", 0, 0)
    assert story.complete(ALICE, fence=fence) is Verdict.FENCE
    assert story.claim(BOB) is Verdict.WAITING
    assert story.offer(BOB) is Verdict.NOT_COORDINATOR
    results = (Result(text="1"), Result(outcome="failed"))
    assert story.offer(results=results[:1]) is Verdict.RESULTS
    assert story.offer(results=results) is OK
    assert story.job.child_results == results
    assert story.claim(BOB, begin=True) is OK
    assert story.job.child_results == results
    assert story.complete(BOB) is OK


def test_results_that_a_job_reads_stay_while_it_waits_for_its_children():
    story = reading(1)
    assert story.offer(results=[STORED]) is OK
    assert story.claim(ALICE, begin=True) is OK
    assert story.give_back(ALICE, reason="after", after=CHILDREN[:1]) is OK
    assert story.offer(results=[Result(text="2")]) is OK
    assert story.job.results == (STORED,)
    assert story.job.child_results == (Result(text="2"),)
    assert STORED.hash in story.job.reads


@pytest.mark.parametrize(
    "reason, after", [("after", ()), ("drain", CHILDREN), ("after", CHILDREN[:1] * 2)]
)
def test_a_yield_names_jobs_to_wait_for_once_with_that_reason_and_no_other(reason, after):
    story = begun()
    assert story.give_back(ALICE, reason=reason, after=after) is Verdict.AFTER


def test_a_job_waits_for_children_only_so_often():
    story = Story(continuations_max=2)
    assert story.schedule() is OK
    for turn in range(3):
        assert story.claim(ALICE, begin=True, at=1_000 + turn * 100) is OK
        at = 1_050 + turn * 100
        assert story.give_back(ALICE, reason="after", after=CHILDREN[:1], at=at) is OK
        if turn < 2:
            assert story.offer(results=[Result(text="1")], at=at + 20) is OK
    assert (story.state, story.job.outcome) == ("failed", "exhausted")


def test_a_wait_for_children_ends_too():
    story = Story(start_by_ms=1_000)
    assert story.schedule(how={"at": 0}) is OK
    assert story.claim(ALICE, begin=True, at=900) is OK
    assert story.give_back(ALICE, reason="after", after=CHILDREN, at=5_000) is OK
    assert story.expire(fence=None, at=6_000) is Verdict.EARLY
    assert story.expire(fence=None, at=6_001) is OK
    assert story.state == "aborted"


def test_a_kind_under_a_limit_refuses_schedules_without_its_label():
    limits = (
        Limit(label="gpu", kinds=("render",), at_once=3),
        Limit(label="film", kinds=("render.film",), rate=1),
        Limit(label="disk", at_once=1),
    )
    for kind, label, verdict in [
        ("render", None, Verdict.LIMIT), ("render", "film", Verdict.LIMIT), ("render", "gpu", OK),
        ("render.film", "gpu", Verdict.LIMIT), ("render.film.cut", "film", OK),
        ("renderer", None, OK), ("build", "gpu", Verdict.LIMIT), ("build", "disk", OK),
    ]:  # fmt: skip
        story = Story(kind=kind, limits=limits)
        assert story.schedule(concurrency=label) is verdict, (kind, label)


@pytest.mark.parametrize(
    "limits, why",
    [
        ([Limit(label="gpu")], "neither at_once nor rate"),
        ([Limit(label="gpu", rate=1), Limit(label="gpu", at_once=1)], "the label gpu"),
        (
            [Limit(label="a", rate=1, kinds=("x",)), Limit(label="b", rate=1, kinds=("x",))],
            "the kind prefix x",
        ),
        ([Limit(label="a", rate=1, kinds=("x",)), Limit(label="b", rate=1, kinds=("x.y",))], None),
    ],
)
def test_limits_that_contradict_each_other_are_no_rules(limits, why):
    found = contradiction(Rules(limits=tuple(limits)))
    assert found is None if why is None else why in found


def test_a_delay_counts_besides_the_other_waits():
    story = Story()
    assert story.schedule(after=(OTHER,), not_before=T0 + 10_000, how={"at": 0}) is OK
    assert story.offer(OWNER, at=9_999) is Verdict.EARLY
    assert story.offer(BOB, at=10_000) is Verdict.NOT_COORDINATOR
    assert story.offer(OWNER, at=10_000) is OK
