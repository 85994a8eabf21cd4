"""The life of a job, told (spec §5, §7.2). Times are milliseconds after the beginning."""

import pytest

from antiphon.core.clock.hlc import pack
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger, Story

OK = Verdict.OK


def claimed(**rules):
    """Alice holds the job from 1,000 on, until 11,000."""
    story = Story(**rules)
    assert story.schedule(how={"at": 0}) is OK
    assert story.claim(ALICE, at=1_000, lease_ms=10_000) is OK
    return story


@pytest.mark.req("M4", "P10")
def test_called_claimed_started_and_completed():
    story = Story()
    assert story.schedule() is OK
    assert story.state == "pending"
    assert story.claim(ALICE) is OK
    assert story.state == "claimed"
    assert story.start(ALICE) is OK
    assert story.state == "running"
    assert story.complete(ALICE) is OK
    assert (story.state, story.job.outcome) == ("succeeded", "succeeded")
    assert story.job.ended_seq == 5


@pytest.mark.req("M4")
def test_the_common_path_is_three_records():
    story = Story()
    assert [story.schedule(), story.claim(begin=True), story.complete()] == [OK, OK, OK]
    assert story.state == "succeeded"


@pytest.mark.req("M4")
def test_a_claim_carries_its_lease_and_names_its_holder():
    story = claimed()
    job = story.job
    assert (job.claimer, job.deadline_ms, job.tenure_lease_ms) == (ALICE.did, T0 + 11_000, 10_000)
    assert job.fence == pack((T0 + 1_000, 0))


@pytest.mark.req("M4", "P10")
def test_a_yielded_or_expired_job_is_pending_and_anyone_may_take_it():
    story = claimed()
    assert story.give_back(ALICE, at=2_000) is OK
    assert (story.state, story.job.claimer) == ("pending", "")
    assert story.claim(BOB, at=3_000) is OK
    assert story.expire(CAROL, at=13_001) is OK
    assert (story.state, story.job.claimer) == ("pending", "")
    assert story.claim(CAROL, at=13_002) is OK


@pytest.mark.req("P10")
@pytest.mark.parametrize("held", [False, True])
def test_a_job_is_aborted_from_any_state_that_is_not_its_end(held):
    story = claimed() if held else Story()
    if not held:
        story.schedule()
    assert story.cancel() is OK
    assert (story.state, story.job.outcome) == ("aborted", "cancelled")
    assert story.complete(ALICE) is (Verdict.FINISHED if held else Verdict.FENCE)


# --- M5: whose op it is ----------------------------------------------------------------------


@pytest.mark.req("M5")
@pytest.mark.parametrize("act", ["start", "complete", "give_back"])
@pytest.mark.parametrize("by", [BOB, OWNER], ids=lambda by: by.name)
def test_only_the_claimer_speaks_for_its_tenure_even_with_the_right_fence(act, by):
    story = claimed()
    before = story.job
    assert getattr(story, act)(by) is Verdict.NOT_CLAIMER
    assert story.job == before
    assert getattr(story, act)(ALICE) is OK


@pytest.mark.req("M5")
@pytest.mark.parametrize("by", [ALICE, BOB, OWNER], ids=lambda by: by.name)
def test_anyone_authorised_expires_what_is_overdue(by):
    story = claimed()
    assert story.expire(by, at=11_001) is OK


@pytest.mark.req("M5", "G7")
@pytest.mark.parametrize("act", ["start", "complete", "give_back"])
def test_a_stalled_worker_cannot_touch_its_successors_tenure(act):
    story = claimed()
    old = story.fence
    story.expire(at=11_001)
    story.claim(BOB, at=11_002)
    before = story.job
    assert getattr(story, act)(ALICE, fence=old) is Verdict.FENCE
    assert story.job == before
    assert story.complete(BOB) is OK
    assert getattr(story, act)(ALICE, fence=old) is Verdict.FENCE


@pytest.mark.req("M5")
def test_the_same_worker_in_a_second_tenure_needs_the_second_fence():
    story = claimed()
    old = story.fence
    story.give_back(ALICE, at=2_000)
    story.claim(ALICE, at=3_000)
    assert story.fence > old
    assert story.complete(ALICE, fence=old) is Verdict.FENCE
    assert story.complete(ALICE) is OK


# --- M6 --------------------------------------------------------------------------------------


@pytest.mark.req("M6")
@pytest.mark.parametrize("status", ["succeeded", "failed"])
@pytest.mark.parametrize("by", [ALICE, BOB, OWNER], ids=lambda by: by.name)
def test_a_completed_job_is_never_claimed_again(status, by):
    story = claimed()
    story.complete(ALICE, status=status)
    ended = story.job
    assert story.claim(by) is Verdict.FINISHED
    assert story.claim(by, at=900_000_000) is Verdict.FINISHED
    assert story.job == ended


# --- M7: the deadline ------------------------------------------------------------------------


@pytest.mark.req("M7")
@pytest.mark.parametrize(
    "at, stamp, verdict",
    [
        (10_999, 10_999, Verdict.EARLY),
        (11_000, 11_000, Verdict.EARLY),
        (11_001, 11_001, OK),
        (11_001, 11_000, Verdict.EARLY),  # the author's clock alone is no evidence
        (11_000, 11_001, Verdict.EARLY),  # and neither is the engine's
        (11_000, 99_999, Verdict.EARLY),
        (12_900, 11_000, Verdict.EARLY),
        (11_001, 99_999, OK),
    ],
)
def test_only_strictly_later_on_both_clocks_is_expired(at, stamp, verdict):
    story = claimed()
    assert story.expire(at=at, stamp=stamp) is verdict
    assert story.state == ("pending" if verdict is OK else "claimed")


@pytest.mark.req("M7")
@pytest.mark.parametrize("stamp", [0, 1_000, 9_000])
def test_the_deadline_follows_from_the_claims_own_time_whenever_it_was_committed(stamp):
    story = Story()
    story.schedule(how={"at": 0})
    assert story.claim(ALICE, at=1_000, stamp=stamp, lease_ms=10_000) is OK
    assert story.job.deadline_ms == T0 + 11_000


@pytest.mark.req("M7")
def test_a_result_after_the_deadline_counts_if_nobody_had_expired_it():
    story = claimed()
    assert story.complete(ALICE, at=50_000) is OK


# --- M8 --------------------------------------------------------------------------------------


@pytest.mark.req("M8")
def test_of_two_expires_made_at_once_the_second_changes_nothing():
    story = claimed()
    fence, tail = story.fence, story.lane.job_tail
    assert story.expire(BOB, at=11_001, prev=tail) is OK
    after = story.job
    assert story.expire(CAROL, fence=fence, at=11_002, prev=tail) is Verdict.PREV
    assert story.job == after


@pytest.mark.req("M8")
@pytest.mark.parametrize("meanwhile", ["pending", "claimed", "exhausted"])
def test_an_expire_repeated_later_says_what_already_holds(meanwhile):
    story = claimed(**({"attempts": 1} if meanwhile == "exhausted" else {}))
    fence = story.fence
    assert story.expire(BOB, at=11_001) is OK
    if meanwhile == "claimed":
        assert story.claim(BOB, at=11_002) is OK
    before = story.job
    verdict = story.expire(CAROL, fence=fence, at=11_500)
    assert verdict is Verdict.ALREADY
    assert verdict.is_accepted
    assert story.job == before
    assert story.job.attempts == 1


# --- M9: renewal -----------------------------------------------------------------------------


@pytest.mark.req("M9")
@pytest.mark.parametrize("name_fence", [False, True])
def test_a_new_claim_in_time_moves_the_deadline_and_keeps_the_fence(name_fence):
    story = claimed()
    fence = story.fence
    assert story.claim(ALICE, at=5_000, fence=fence if name_fence else None) is OK
    assert (story.fence, story.job.deadline_ms) == (fence, T0 + 15_000)
    assert story.expire(at=11_001) is Verdict.EARLY
    assert story.complete(ALICE, fence=fence) is OK


@pytest.mark.req("M9")
@pytest.mark.parametrize(
    "at, stamp, verdict",
    [
        (11_000, 11_000, OK),
        (11_001, 11_001, Verdict.LEASE_OVER),
        (11_000, 11_001, Verdict.LEASE_OVER),  # dated back into a lease that had ended
        (11_001, 11_000, Verdict.LEASE_OVER),
    ],
)
def test_a_renewal_needs_both_clocks_before_the_deadline(at, stamp, verdict):
    story = claimed()
    before = story.job
    assert story.claim(ALICE, at=at, stamp=stamp) is verdict
    assert (story.job == before) == (verdict is not OK)


@pytest.mark.req("M9")
def test_a_renewal_never_shortens_a_lease():
    story = claimed()
    assert story.claim(ALICE, at=2_000, lease_ms=5_000) is OK
    assert story.job.deadline_ms == T0 + 11_000
    assert story.claim(ALICE, at=7_000, lease_ms=5_000) is OK
    assert story.job.deadline_ms == T0 + 12_000


@pytest.mark.req("M9")
@pytest.mark.parametrize("begin, state", [(False, "claimed"), (True, "running")])
def test_a_renewal_may_begin_the_work_and_never_unbegins_it(begin, state):
    story = claimed()
    assert story.claim(ALICE, begin=begin) is OK
    assert story.state == state
    story.start(ALICE)
    assert story.claim(ALICE, begin=False) is OK
    assert story.state == "running"


@pytest.mark.req("M9")
def test_nobody_elses_claim_extends_a_lease():
    story = claimed()
    before = story.job
    assert story.claim(BOB) is Verdict.HELD
    assert story.claim(BOB, fence=story.fence) is Verdict.FENCE
    assert story.job == before


@pytest.mark.req("M9")
def test_a_renewal_that_names_a_lost_tenure_does_not_begin_a_new_one():
    story = claimed()
    fence = story.fence
    story.give_back(ALICE, at=2_000)
    assert story.claim(ALICE, at=3_000, fence=fence) is Verdict.FENCE
    assert story.state == "pending"


# --- M10: rivals -----------------------------------------------------------------------------


@pytest.mark.req("M10", "G8")
@pytest.mark.parametrize("first_at, second_at", [(1_000, 1_500), (1_500, 1_000)])
def test_of_two_rival_claims_the_first_committed_wins_whatever_their_times(first_at, second_at):
    story = Story()
    story.schedule(how={"at": 0})
    assert story.claim(BOB, at=first_at, prev=0) is OK
    assert story.claim(ALICE, at=second_at, prev=0, stamp=2_000) is Verdict.PREV
    assert story.job.claimer == BOB.did


@pytest.mark.req("M10")
@pytest.mark.parametrize("at, verdict", [(1_500, Verdict.HELD), (500, Verdict.STALE)])
def test_a_later_claim_that_saw_the_first_is_rejected_while_it_holds(at, verdict):
    story = Story()
    story.schedule(how={"at": 0})
    assert story.claim(BOB, at=1_000) is OK
    assert story.claim(ALICE, at=at, stamp=2_000) is verdict
    assert story.job.claimer == BOB.did


@pytest.mark.req("M10")
def test_two_authors_may_share_a_timestamp_and_the_second_is_merely_stale():
    story = claimed()
    assert story.expire(BOB, at=1_000) is Verdict.STALE


# --- M11 -------------------------------------------------------------------------------------


@pytest.mark.req("M11")
def test_a_second_op_with_one_timestamp_by_one_author_is_equivocation():
    story = claimed()
    before = story.job
    assert story.complete(ALICE, at=1_000) is Verdict.EQUIVOCATION
    assert story.start(ALICE, at=1_000) is Verdict.EQUIVOCATION
    assert story.job == before
    assert story.start(ALICE, at=1_000, logical=1) is OK


@pytest.mark.req("M11")
def test_the_committed_first_of_an_equivocating_pair_stands():
    story = Story()
    story.schedule(how={"at": 0})
    one = story.claim(ALICE, at=1_000, lease_ms=10_000)
    other = story.claim(ALICE, at=1_000, lease_ms=20_000)
    assert (one, other) == (OK, Verdict.EQUIVOCATION)
    assert story.job.deadline_ms == T0 + 11_000


@pytest.mark.req("M11")
def test_a_record_committed_twice_counts_once():
    ledger = Ledger()
    story = Story(ledger)
    story.schedule(how={"at": 0})
    story.claim(ALICE, at=1_000)
    before = story.job
    again = ledger.log[-1]
    assert ledger.append(again.subject, again.payload, stamp=1_000) is Verdict.PREV
    assert story.job == before
