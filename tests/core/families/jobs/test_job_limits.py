"""Bounds: attempts, yields, pauses, windows, leases and what a completion may say (spec §7.2)."""

from hashlib import sha256

import msgspec
import pytest
from msgspec.structs import replace

from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import Retry
from antiphon.core.manifest import job_id
from antiphon.core.proof.output import Output, Stored
from antiphon.core.proof.statement import UNSIGNED, Proof, Runner
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger, Story

OK = Verdict.OK


def called(*, how=None, rules=None, **fields):
    story = Story(**(rules or {}))
    assert story.schedule(how={"at": 0, **(how or {})}, **fields) is OK
    return story


def claimed(**how):
    """Alice holds the job from 1,000 until 11,000."""
    story = called(**how)
    assert story.claim(ALICE, at=1_000, lease_ms=10_000) is OK
    return story


# --- attempts --------------------------------------------------------------------------------


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_expiries_and_errors_use_up_the_attempts(by_rule, attempts):
    if by_rule:
        story = called(rules={"attempts": attempts})
    else:
        story = called(retry=Retry(attempts=attempts))
    at = 0
    for used in range(attempts):
        assert (story.state, story.job.attempts) == ("pending", used)
        at += 100_000
        assert story.claim(ALICE, at=at) is OK
        if used % 2:
            assert story.expire(at=at + 10_001) is OK
        else:
            assert story.give_back(ALICE, reason="error") is OK
    assert (story.state, story.job.outcome) == ("failed", "exhausted")
    assert story.job.attempts == attempts
    assert story.claim(BOB, at=at + 200_000) is Verdict.FINISHED


@pytest.mark.parametrize(
    "end",
    [
        lambda story: story.complete(BOB),
        lambda story: story.complete(BOB, status="failed"),
        lambda story: story.cancel(),
        lambda story: story.expire(at=99_000),
        lambda story: story.give_back(BOB, reason="error"),
    ],
    ids=["succeeded", "failed", "cancelled", "expired", "yielded"],
)
def test_the_attempt_that_ends_a_job_is_a_try_as_those_before_it_are(end):
    story = called(retry=Retry(attempts=2))
    assert story.job.tries == 0
    assert story.claim(ALICE) is OK
    assert story.job.tries == 1
    assert story.give_back(ALICE, reason="error") is OK
    assert story.claim(ALICE) is OK
    assert story.give_back(ALICE, reason="drain") is OK
    assert story.job.tries == 1, "giving back is no failure"
    assert story.claim(BOB) is OK
    assert end(story) is OK
    assert (story.job.is_terminal, story.job.tries) == (True, 2)


@pytest.mark.parametrize("cap", [0, 1, 3])
def test_other_yields_have_a_cap_of_their_own_and_cost_no_attempt(cap):
    story = called(rules={"yields_max": cap}, retry=Retry(attempts=1))
    for reason in ["drain", "battery", "sleep", "other"][:cap]:
        assert story.claim(ALICE) is OK
        assert story.give_back(ALICE, reason=reason) is OK
        assert (story.state, story.job.attempts) == ("pending", 0)
    assert story.claim(ALICE) is OK
    assert story.give_back(ALICE, reason="lost") is OK
    assert (story.state, story.job.outcome) == ("failed", "exhausted")


@pytest.mark.parametrize("attempts, verdict", [(5, OK), (6, Verdict.ATTEMPTS)])
def test_a_job_may_not_ask_for_more_attempts_than_the_rules_allow(attempts, verdict):
    story = Story(attempts_max=5)
    assert story.schedule(retry=Retry(attempts=attempts)) is verdict


# --- pauses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [ALICE, BOB], ids=lambda by: by.name)
@pytest.mark.parametrize("at, verdict", [(6_999, Verdict.NOT_YET), (7_000, OK)])
def test_nobody_claims_before_the_pause_that_a_yield_asked_for(by, at, verdict):
    story = claimed()
    assert story.give_back(ALICE, at=2_000, retry_after_ms=5_000) is OK
    assert story.claim(by, at=at) is verdict


def test_a_pause_is_cut_down_to_what_the_rules_allow():
    story = claimed(rules={"retry_after_max_ms": 3_000})
    assert story.give_back(ALICE, at=2_000, retry_after_ms=2**53 - 1) is OK
    assert story.job.retry_after_ms == T0 + 5_000
    assert story.claim(BOB, at=4_999) is Verdict.NOT_YET
    assert story.claim(BOB, at=5_000) is OK


@pytest.mark.parametrize("at, verdict", [(21_000, Verdict.COOLDOWN), (21_001, OK)])
def test_a_worker_whose_tenure_expired_waits_one_lease(at, verdict):
    story = claimed()
    assert story.expire(at=11_001) is OK
    assert story.claim(ALICE, at=at) is verdict


def test_the_wait_is_as_long_as_the_lease_was_at_the_end():
    story = claimed()
    assert story.claim(ALICE, at=2_000, lease_ms=60_000) is OK
    assert story.expire(at=62_001) is OK
    assert story.claim(ALICE, at=122_000) is Verdict.COOLDOWN
    assert story.claim(ALICE, at=122_001) is OK


def test_others_need_not_wait_and_two_who_failed_both_wait():
    story = claimed()
    story.expire(at=11_001)
    assert story.claim(BOB, at=11_002, lease_ms=5_000) is OK
    assert story.expire(at=16_003) is OK
    assert story.claim(ALICE, at=16_004) is Verdict.COOLDOWN
    assert story.claim(BOB, at=16_005) is Verdict.COOLDOWN
    assert story.claim(CAROL, at=16_006) is OK


def test_one_who_gave_the_job_back_may_take_it_again_at_once():
    story = claimed()
    story.give_back(ALICE, at=2_000)
    assert story.claim(ALICE, at=2_001) is OK


# --- start_by --------------------------------------------------------------------------------


@pytest.mark.parametrize("at, verdict", [(50_000, OK), (50_001, Verdict.TOO_LATE)])
def test_a_claim_past_start_by_is_too_late(at, verdict):
    assert called(start_by=T0 + 50_000).claim(ALICE, at=at) is verdict


@pytest.mark.parametrize(
    "at, stamp, verdict",
    [(50_000, 50_000, Verdict.EARLY), (50_001, 50_000, Verdict.EARLY),
     (50_000, 50_001, Verdict.EARLY), (50_001, 50_001, OK)],
)  # fmt: skip
@pytest.mark.parametrize("waits", [False, True])
def test_a_wait_ends_strictly_after_start_by_on_both_clocks(waits, at, stamp, verdict):
    story = called(start_by=T0 + 50_000, not_before=T0 if waits else None)
    assert story.expire(fence=None, at=at, stamp=stamp) is verdict
    if verdict is OK:
        assert (story.state, story.job.outcome) == ("aborted", "expired")


def test_the_mesh_has_a_default_for_start_by():
    story = called(rules={"start_by_ms": 1_000}, how={"at": 500})
    assert story.job.start_by_ms == T0 + 1_500


@pytest.mark.parametrize(
    "start_by, verdict", [(T0 + 1, OK), (T0, Verdict.TOO_LATE), (0, Verdict.TOO_LATE)]
)
def test_a_job_whose_window_is_empty_cannot_be_called(start_by, verdict):
    assert Story().schedule(start_by=start_by, how={"at": 0}) is verdict


@pytest.mark.parametrize("end", ["yield", "expire"])
def test_a_job_that_is_tried_again_gets_its_whole_window_again(end):
    story = called(start_by=T0 + 20_000)
    assert story.claim(ALICE, at=15_000, lease_ms=10_000) is OK
    if end == "yield":
        assert story.give_back(ALICE, at=24_000, retry_after_ms=6_000) is OK
        expected = 50_000
    else:
        assert story.expire(at=25_001) is OK
        expected = 55_001  # counted from the end of the cool-down
    assert story.job.start_by_ms == T0 + expected
    assert story.claim(BOB, at=expected) is OK


def test_no_wait_reaches_beyond_the_horizon():
    story = called(start_by=2**48 - 1, rules={"horizon_ms": 4_000_000, "start_by_ms": 1_000})
    assert story.job.start_by_ms == story.job.hlc[0] + 4_000_000


def test_a_sole_worker_can_take_its_expired_job_again_within_the_window():
    story = called(start_by=T0 + 1_000)
    assert story.claim(ALICE, at=500, lease_ms=10_000) is OK
    assert story.expire(at=10_501) is OK
    assert story.claim(ALICE, at=20_500) is Verdict.COOLDOWN
    assert story.claim(ALICE, at=20_501) is OK


def test_a_window_is_never_shortened_by_a_retry():
    story = called(start_by=T0 + 1_000_000)
    story.claim(ALICE, at=1_000)
    story.give_back(ALICE, at=2_000)
    assert story.job.start_by_ms == T0 + 1_002_000


@pytest.mark.parametrize(
    "now, by, expected",
    [(6_999, BOB, False), (7_000, BOB, True), (27_000, BOB, True), (27_001, BOB, False)],
)
def test_whether_a_job_is_claimable_agrees_with_the_verdict(now, by, expected):
    story = called(start_by=T0 + 20_000)
    story.claim(ALICE, at=1_000)
    story.give_back(ALICE, at=2_000, retry_after_ms=5_000)
    assert story.job.start_by_ms == T0 + 27_000
    assert story.job.is_claimable(T0 + now, by.did) is expected
    assert (story.claim(by, at=now) is OK) is expected


# --- leases ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lease_ms, verdict",
    [(4_999, Verdict.LEASE), (5_000, OK), (120_000, OK), (120_001, Verdict.LEASE)],
)
@pytest.mark.parametrize("renewal", [False, True])
def test_a_lease_lies_within_the_bounds(lease_ms, verdict, renewal):
    story = claimed() if renewal else called()
    assert story.claim(ALICE, lease_ms=lease_ms) is verdict


@pytest.mark.parametrize(
    "fields, verdict",
    [
        ({"lease_ms": 4_999}, Verdict.LEASE),
        ({"lease_ms": 5_000}, OK),
        ({"lease_ms": 3_600_000}, OK),
        ({"lease_ms": 3_600_001}, Verdict.LEASE),
        ({"lease_ms_max": 29_999}, Verdict.LEASE),
        ({"lease_ms_max": 30_000}, OK),
        ({"lease_ms_max": 3_600_001}, Verdict.LEASE),
        ({"lease_ms": 60_000, "lease_ms_max": 59_999}, Verdict.LEASE),
    ],
    ids=str,
)
def test_what_a_job_asks_for_lies_within_the_rules(fields, verdict):
    assert Story().schedule(**fields) is verdict


def test_a_jobs_own_bound_is_the_bound():
    story = called(lease_ms_max=40_000)
    assert story.claim(ALICE, lease_ms=40_001) is Verdict.LEASE
    assert story.claim(ALICE, lease_ms=40_000) is OK


@pytest.mark.parametrize(
    "timeout, bound_ms",
    [(30, 30_000 + 120_000), (0, None)],
    ids=["its timeout and a lease", "no timeout"],
)
def test_a_tenure_is_renewed_for_as_long_as_an_attempt_may_take(timeout, bound_ms):
    story = Story(lease_max_ms=120_000)
    story.manifest = replace(story.manifest, timeout=timeout)
    story.id = job_id(story.manifest)
    assert story.schedule(how={"at": 10}) is OK
    assert story.claim(at=20, lease_ms=100_000) is OK
    for at in range(50_020, 1_000_020, 50_000):
        is_over = bound_ms is not None and at - 20 > bound_ms
        verdict = story.claim(at=at, lease_ms=100_000, fence=story.fence)
        assert verdict is (Verdict.LEASE_OVER if is_over else OK)
        if is_over:
            assert story.expire(at=story.job.deadline_ms - T0 + 1) is OK
            return
    assert bound_ms is None


# --- calling ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [{}, {"priority": "high"}, {"not_before": T0}, {"lease_ms": 1}, {"start_by": T0 + 9}],
    ids=str,
)
def test_calling_a_job_again_changes_nothing_whatever_the_other_fields_say(fields):
    story = called()
    before = story.job
    verdict = story.schedule(BOB, **fields)
    assert verdict is Verdict.EXISTS
    assert verdict.is_accepted
    assert story.job == before


def test_a_second_call_that_is_older_than_the_first_exists_as_well():
    story = called(how={"at": 1_000})
    assert story.schedule(BOB, priority="high", how={"at": 500, "stamp": 1_000}) is Verdict.EXISTS


def test_a_rejected_call_does_not_stand_in_the_way_of_a_right_one():
    story = Story()
    assert story.schedule(lease_ms=1) is Verdict.LEASE
    assert story.lane.job is None
    assert story.schedule() is OK


def test_the_same_manifest_under_another_kind_is_another_job():
    ledger = Ledger()
    junk, build = Story(ledger, kind="junk"), Story(ledger, kind="build")
    assert junk.id == build.id
    assert junk.schedule() is OK
    assert junk.claim(ALICE) is OK
    assert junk.complete(ALICE) is OK
    assert build.lane.job is None
    assert build.claim(BOB) is Verdict.NO_JOB
    assert build.schedule() is OK
    assert (junk.state, build.state) == ("succeeded", "pending")


# --- offers ----------------------------------------------------------------------------------


@pytest.mark.req("M15")
@pytest.mark.parametrize("delay", [{}, {"not_before": T0}], ids=str)
def test_a_job_that_is_counted_is_claimed_only_after_the_coordinators_offer(delay):
    story = called(concurrency="gpu", **delay)
    assert story.state == "waiting"
    assert story.claim(ALICE) is Verdict.WAITING
    assert story.offer(BOB) is Verdict.NOT_COORDINATOR
    assert story.offer(OWNER) is OK
    assert story.claim(ALICE) is OK


def test_repeating_the_call_does_not_make_a_claim_in_flight_stale():
    story = called()
    before = story.job
    assert story.offer(BOB, at=5_000) is OK
    assert story.offer(CAROL, at=6_000) is OK
    assert (story.job.hlc, story.state, story.job.calls) == (before.hlc, "pending", 3)
    assert story.claim(ALICE, at=1_000, prev=0) is OK


# --- completing ------------------------------------------------------------------------------

TEXT = "héllo"
STORED = Stored(hash=digest(TEXT.encode()), size=6)


@pytest.mark.parametrize("content", [{"text": TEXT}, {"text": ""}, {"stored": STORED}], ids=str)
def test_an_output_is_a_text_or_stored(content):
    story = claimed()
    assert story.complete(ALICE, outputs=(Output(name="out", **content),)) is OK


@pytest.mark.parametrize("content", [{}, {"text": TEXT, "stored": STORED}], ids=["none", "both"])
def test_nobody_can_read_an_output_with_no_content_or_with_two(content):
    with pytest.raises(ValueError, match="either a text or stored"):
        Output(name="out", **content)
    written = msgspec.json.encode({"name": "out", **content})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(written, type=Output)


def test_the_digests_and_the_size_of_a_text_follow_from_it():
    output = Output(name="out", text="h\u00e9llo")
    raw = "h\u00e9llo".encode()
    assert (output.hash, output.size) == (digest(raw), len(raw))
    assert output.sha256 == sha256(raw).hexdigest()
    assert codec.encode(output) == '{"name":"out","text":"h\u00e9llo"}'.encode()


def test_a_completion_needs_its_proof():
    story = claimed()
    junk = Proof(
        sig=UNSIGNED,
        ended="0" * 16,
        runner=Runner(name="test", version="1", platform="any"),
        usage=Usage(wall_ms=1),
    )
    for proof in (None, junk):
        assert story.complete(ALICE, proof=proof) is Verdict.PROOF
    assert story.complete(ALICE) is OK


def test_the_fence_is_checked_before_what_a_completion_says():
    story = claimed()
    assert story.complete(ALICE, fence="0" * 16, proof=None) is Verdict.FENCE
    assert story.complete(BOB, proof=None) is Verdict.NOT_CLAIMER
