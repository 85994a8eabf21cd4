"""How long a refused worker stays away, and when an unanswered job is called again."""

import pytest

from antiphon.core.policy.claim_delay import (
    JITTER_S,
    LONGEST_S,
    REPLICAS_KEPT,
    SIBLING_LEAST_S,
    SIBLING_S,
    SiblingTurns,
    claim_delay_s,
    sibling_delay_s,
)
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB
from tests.core.ledger import T0, Story


def wait_s(
    story: Story, verdict: Verdict, *, by=BOB, at: int, chance: float = 0.0, deliveries: int = 1
) -> float:
    return claim_delay_s(
        story.job, verdict, by=by.did, deliveries=deliveries, now_ms=T0 + at, chance=chance
    )


def held(lease_ms: int = 10_000) -> Story:
    story = Story()
    story.schedule()
    assert story.claim(ALICE, at=1_000, lease_ms=lease_ms) is Verdict.OK
    return story


@pytest.mark.req("M12", "M23")
def test_from_a_held_job_it_stays_away_until_the_lease_ends():
    assert wait_s(held(), Verdict.HELD, at=3_000) == pytest.approx(8.0)
    assert wait_s(held(), Verdict.HELD, at=60_000) == pytest.approx(1.0), "then it looks again soon"


def test_after_a_yield_it_comes_back_when_the_job_may_be_claimed():
    story = held()
    story.give_back(ALICE, at=2_000, retry_after_ms=4_000)
    assert wait_s(story, Verdict.NOT_YET, at=3_000) == pytest.approx(3.0)


def test_after_its_own_expiry_it_waits_one_lease_and_others_do_not():
    story = held()
    story.expire(at=11_001)
    assert wait_s(story, Verdict.COOLDOWN, by=ALICE, at=12_001) == pytest.approx(9.0)
    assert wait_s(story, Verdict.NOT_YET, by=BOB, at=12_001) == 0


@pytest.mark.parametrize("verdict", [Verdict.NOT_ROUTED, Verdict.NO_CHAIN, Verdict.REVOKED])
def test_a_job_for_others_goes_back_at_once_and_is_looked_at_ever_more_seldom(verdict):
    waits = [wait_s(held(), verdict, at=3_000, deliveries=count) for count in range(1, 40)]
    assert waits[0] <= 0.1
    assert waits == sorted(waits)
    assert sum(wait < LONGEST_S for wait in waits) <= 12
    assert waits[-1] == LONGEST_S


def test_no_stand_off_is_longer_than_the_longest_and_odd_refusals_are_not_retried_at_once():
    story = held(lease_ms=120_000)
    assert wait_s(story, Verdict.HELD, at=2_000) == LONGEST_S
    story.give_back(ALICE, at=3_000)
    assert wait_s(story, Verdict.LEASE, at=4_000) >= 1.0


@pytest.mark.req("M24")
def test_two_workers_that_were_refused_together_do_not_come_back_together():
    story = held()
    early, late = (wait_s(story, Verdict.HELD, at=3_000, chance=chance) for chance in (0.1, 0.9))
    assert late - early == pytest.approx(0.8 * JITTER_S)


def test_each_further_call_of_an_unanswered_job_waits_twice_as_long_up_to_a_bound():
    story = Story(offer_after_ms=1_000)
    story.schedule(how={"at": 0})
    waits = []
    for at in range(9):
        waits.append(story.job.recall_ms - story.job.called_ms)
        story.offer(BOB, at=at + 1)
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000, 64_000]
    again = Story(offer_after_ms=1_000)
    again.schedule(how={"at": 0})
    again.claim(ALICE, at=10)
    again.give_back(ALICE, at=20, retry_after_ms=5_000)
    assert again.job.recall_ms == T0 + 20 + 5_000 + 1_000, "from when it may be claimed"


def test_a_second_replica_is_left_to_others_for_a_while_and_no_longer():
    left_s, looks = 0.0, 0
    while (delay_s := sibling_delay_s(left_s)) is not None:
        left_s += delay_s
        looks += 1
    assert SIBLING_S <= left_s < SIBLING_S + SIBLING_LEAST_S
    assert looks < 10


def test_a_worker_takes_one_replica_of_a_job_and_a_second_only_when_nobody_came():
    turns, parent = SiblingTurns(), ("web.fetch", "p")
    assert turns.delay_s(parent, "a", 0.0) is None
    assert turns.delay_s(parent, "a", 1.0) is None, "it is its own"
    assert turns.delay_s(("web.fetch", "q"), "b", 1.0) is None, "of another job"
    assert turns.delay_s(parent, "c", 1.0) == 0.1
    assert turns.delay_s(parent, "c", 2.0) == 1.0
    assert turns.delay_s(parent, "c", 4.0) is None
    assert turns.delay_s(parent, "a", 4.0) == 0.1, "now that one is left to others"


def test_what_a_worker_remembers_of_replicas_is_bounded():
    turns, parent = SiblingTurns(), ("web.fetch", "p")
    for number in range(2 * REPLICAS_KEPT):
        turns.delay_s(("web.fetch", str(number)), "a", 0.0)
        turns.delay_s(parent, str(number), 0.0)
    assert len(turns._taken) <= REPLICAS_KEPT
    assert len(turns._left) <= REPLICAS_KEPT
