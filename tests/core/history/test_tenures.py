"""Which workers were lost with a job, by its records, and in words."""

import pytest

from antiphon.core.families.jobs.ops import Failure, Retry
from antiphon.core.history.tenures import Tenure, lost_tenures, lost_words, tenures_of
from antiphon.core.policy import attempt_end
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB
from tests.core.ledger import Story
from tests.core.policy.test_attempt_end import a_job
from tests.core.policy.test_explanation import told_history
from tests.core.question_story import QuestionStory

T0 = 1_700_000_000_000
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def lost(*times_ms: int) -> list[Tenure]:
    return [
        Tenure(node=f"w{number}", fence="", since_ms=0, until_ms=at_ms, how="expired")
        for number, at_ms in enumerate(times_ms, 1)
    ]


@pytest.mark.parametrize(
    "times_ms, words",
    [
        ([], ""),
        ([T0], "a worker was lost while running it: w1 (22:13 UTC)"),
        (
            [T0, T0 + MINUTE_MS],
            "2 workers were lost while running it: w1 (22:13 UTC), w2 (22:14 UTC)",
        ),
        (
            [T0, T0 + DAY_MS],
            "2 workers were lost while running it:"
            " w1 (2023-11-14 22:13 UTC), w2 (2023-11-15 22:13 UTC)",
        ),
        (
            [T0] * 7,
            "7 workers were lost while running it: 2 before, w3 (22:13 UTC), w4 (22:13 UTC),"
            " w5 (22:13 UTC), w6 (22:13 UTC), w7 (22:13 UTC)",
        ),
    ],
)
def test_who_was_lost_and_when_and_of_many_the_last(times_ms, words):
    assert lost_words(lost(*times_ms), str) == words


def test_an_expiry_and_a_restart_lose_a_worker_and_nothing_else_does():
    story = Story()
    story.schedule(retry=Retry(attempts=9))
    story.claim(ALICE, at=1_000, lease_ms=5_000)
    story.expire(at=8_000)
    story.claim(BOB, at=14_000)
    gone = attempt_end.lost(story.job)
    story.give_back(BOB, at=15_000, reason="error", error=gone.error)
    story.claim(BOB, at=16_000)
    story.give_back(BOB, at=17_000, reason="error", error=Failure(name="ValueError", message=""))
    story.claim(ALICE, at=90_000)
    story.give_back(ALICE, at=91_000)
    found = lost_tenures(told_history(story))
    assert [(one.node, one.how) for one in found] == [
        (ALICE.did, "expired"),
        (BOB.did, "restarted"),
    ]


def test_a_worker_that_ends_its_tenure_too_late_was_slow_and_is_not_lost():
    story = Story()
    story.schedule(retry=Retry(attempts=9))
    story.claim(ALICE, at=1_000, lease_ms=5_000)
    slow = story.fence
    story.expire(at=8_000)
    assert [one.node for one in lost_tenures(told_history(story))] == [ALICE.did]
    story.claim(BOB, at=14_000, lease_ms=5_000)
    assert story.complete(BOB, fence=slow, at=14_500) is Verdict.FENCE
    assert [one.node for one in lost_tenures(told_history(story))] == [ALICE.did], "another's word"
    assert story.complete(ALICE, fence=slow, at=15_000) is Verdict.FENCE
    assert lost_tenures(told_history(story)) == ()
    story.expire(at=25_000)
    assert [one.node for one in lost_tenures(told_history(story))] == [BOB.did]


def test_the_process_that_asks_is_not_lost_and_one_before_it_with_its_key_is():
    story = Story()
    story.schedule(retry=Retry(attempts=9))
    fences = []
    for at in (1_000, 21_000):
        story.claim(ALICE, at=at, lease_ms=5_000)
        fences.append(story.fence)
        story.expire(at=at + 7_000)
    for living, lost in (((ALICE.did, fences[0]), []), ((ALICE.did, fences[1]), fences[:1])):
        found = lost_tenures(told_history(story), living=living)
        assert [one.fence for one in found] == lost
    assert len(lost_tenures(told_history(story), living=(BOB.did, fences[0]))) == 2


def test_who_leaves_a_question_is_no_lost_worker():
    asked = QuestionStory()
    asked.ask()
    asked.take(ALICE, at=1_000)
    asked.expire(at=120_000)
    assert asked.state == "pending"
    assert tenures_of(told_history(asked))
    assert lost_tenures(told_history(asked)) == ()


@pytest.mark.parametrize(
    "count, retry, attempts_max, is_over",
    [
        (1, Retry(), 3, False),
        (2, Retry(), 3, True),
        (2, Retry(attempts=3), 3, False),
        (2, Retry(), 100, False),
    ],
    ids=["one", "two", "the submitter chose", "the owner chose"],
)
def test_after_two_lost_workers_it_is_over_unless_somebody_chose(
    count, retry, attempts_max, is_over
):
    job = a_job(attempts=count, attempts_max=attempts_max)
    fault = attempt_end.too_many_lost(job, retry, lost(*[T0] * count), str)
    assert (fault is not None) is is_over
    assert fault is None or fault.is_final
