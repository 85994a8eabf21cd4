"""What every op on a lane must satisfy before its own rule is asked (spec §4.2, §5, §7.3).

Time, predecessor, deps, authority, existence, order: in that sequence.
"""

import pytest

from antiphon.core import opened_record
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobOffer, OfferBody
from antiphon.core.families.jobs.state import JobLane
from antiphon.core.families.mesh.ops import MeshRoute, RouteBody
from antiphon.core.family import Needs, Reads
from antiphon.core.opened_record import dep_of
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import judge
from tests.core.authors import ALICE, BOB, OWNER
from tests.core.ledger import T0, Ledger, Story
from tests.job_lanes import job_of

OK, PREV, MISSING = Verdict.OK, Verdict.PREV, Verdict.MISSING_DEP
DAY = 86_400_000


def called():
    story = Story()
    assert story.schedule(how={"at": 0}) is OK
    return story


# --- time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at, stamp, verdict",
    [
        (3_000, 1_000, OK),
        (3_001, 1_000, Verdict.DRIFT),
        (1_000, 1_000 + 30 * DAY, OK),
        (1_000, 1_001 + 30 * DAY, Verdict.TOO_OLD),
    ],
)
def test_an_op_is_bound_to_its_commit_time_exactly_to_the_edge(at, stamp, verdict):
    story = called()
    assert story.claim(ALICE, at=at, stamp=stamp) is verdict
    assert story.state == ("claimed" if verdict is OK else "pending")


def test_the_bounds_are_the_meshs_own():
    story = Story(max_drift_ms=100, horizon_ms=7 * DAY)
    assert story.schedule(how={"at": 101, "stamp": 0}) is Verdict.DRIFT
    assert story.schedule(how={"at": 0, "stamp": 7 * DAY + 1}) is Verdict.TOO_OLD
    assert story.schedule(how={"at": 100, "stamp": 0}) is OK


def test_a_future_dated_claim_cannot_own_the_order():
    story = called()
    assert story.claim(BOB, at=10**9, stamp=1_000) is Verdict.DRIFT
    assert story.claim(ALICE, at=1_000) is OK


# --- the chain -------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-1, 1, 1_000])
def test_an_op_that_names_another_predecessor_is_rejected(off):
    story = called()
    assert story.claim(ALICE) is OK
    before = story.job
    assert story.complete(ALICE, prev=story.lane.job_tail + off) is PREV
    assert story.job == before


def test_the_first_op_on_a_subject_names_nothing():
    story = called()
    assert story.claim(ALICE, prev=2) is PREV  # the call's sequence is another subject's
    assert story.claim(ALICE, prev=3) is OK


def test_a_rejected_record_and_even_junk_is_a_link_of_the_chain():
    story = called()
    subject = job_subjects.job(story.ledger.mesh, story.kind, story.id)
    assert story.claim(ALICE, lease_ms=1) is Verdict.LEASE
    assert story.claim(ALICE, prev=0) is PREV
    assert story.ledger.append(subject, b"junk") is Verdict.FRAME
    assert story.lane.job_tail == 5
    assert story.claim(ALICE, prev=5) is OK


@pytest.mark.parametrize("token", ["jobs.3", "jobs.x", "jobs.High", "jobs.00", "else", "seal"])
def test_a_stray_record_that_a_lanes_filter_reads_does_not_move_the_lane(token):
    # A full node finds no lane for it; a light reader gets it by wildcard. Both must agree.
    story = called()
    mesh = story.ledger.mesh
    subject = f"ap.{mesh}.{token}.{story.kind}.{story.id}"
    payload = story.ledger.log[-1].payload
    opened = opened_record.open_record(PROTOCOL, mesh, 9, T0, subject, payload)
    outcome = judge(story.ledger.history.current, story.lane, opened)
    assert outcome.verdict is Verdict.SUBJECT
    assert outcome.lane == story.lane
    assert job_of(subject) is None


# --- deps ------------------------------------------------------------------------------------


@pytest.mark.req("M18")
def test_an_op_whose_deps_are_on_the_log_is_judged():
    story = called()
    ledger = story.ledger
    assert story.claim(ALICE, deps=(ledger.dep(1), ledger.dep(2))) is OK


@pytest.mark.req("M18")
@pytest.mark.parametrize("case", ["nothing there", "another id", "one of two", "itself", "zero"])
def test_an_op_with_a_missing_dep_is_rejected(case):
    story = called()
    ledger = story.ledger
    nowhere = "blake3:" + "0" * 64
    deps = {
        "nothing there": ((99, ledger.dep(2)[1]),),
        "another id": ((2, ledger.dep(1)[1]),),
        "one of two": (ledger.dep(2), (1, nowhere)),
        "itself": ((3, nowhere),),
        "zero": ((0, nowhere),),
    }[case]
    before = story.job
    assert story.claim(ALICE, deps=deps) is MISSING
    assert story.job == before


@pytest.mark.req("M18")
def test_a_dep_that_was_committed_later_does_not_count_for_whoever_reads_later():
    story = called()
    ledger = story.ledger
    future = ledger.draft(JobOffer, OfferBody(kind=story.kind, job=story.id), BOB, at=2_000)
    claim = ledger.draft(
        JobClaim,
        ClaimBody(kind=story.kind, job=story.id, lease_ms=10_000),
        ALICE,
        at=1_000,
        deps=((4, future.op_id),),
    )
    assert ledger.commit(claim) is MISSING  # sequence 3
    assert ledger.commit(future) is OK  # sequence 4: now the log holds what it named
    opened = opened_record.open_record(
        PROTOCOL, ledger.mesh, 3, T0 + 1_000, claim.subject, claim.payload
    )
    one = ledger.log[3]
    late = Reads(records={4: dep_of(PROTOCOL, one.subject, one.payload, one.commit_ms)})
    assert late.records[4].op_id == future.op_id
    fresh = JobLane((0, 0, 2, 0, 0), story.job)
    assert judge(ledger.history.at(3, T0 + 1_000), fresh, opened, late).verdict is MISSING


def two_kinds():
    """A ledger with one job of each of two kinds: records 2 and 3."""
    ledger = Ledger()
    ours, theirs = Story(ledger, kind="render"), Story(ledger, kind="build", word="make")
    assert ours.schedule() is theirs.schedule() is OK
    return ledger, ours


@pytest.mark.req("M18")
def test_an_op_about_a_job_names_nothing_of_another_kind():
    ledger, ours = two_kinds()
    assert ours.claim(deps=(ledger.dep(3),)) is MISSING


@pytest.mark.req("M18")
def test_a_control_op_names_control_records_only():
    ledger, _ = two_kinds()
    body = RouteBody(kind="render", target=OWNER.did)
    assert ledger.put(MeshRoute, body, OWNER, deps=(ledger.dep(2),)) is MISSING
    again = RouteBody(kind="render.video", target=OWNER.did)
    assert ledger.put(MeshRoute, again, OWNER, deps=(ledger.dep(1),)) is OK


@pytest.mark.req("M18")
def test_what_readers_of_a_kind_share_may_be_named():
    ledger, ours = two_kinds()
    sibling = Story(ledger, kind="render", word="false")
    assert sibling.schedule() is OK
    assert ours.claim(deps=(ledger.dep(1), ledger.dep(2), ledger.dep(4))) is OK


def test_a_stray_record_named_as_a_dep_is_no_crash():
    first = called()
    ledger = first.ledger
    ledger.append(f"ap.{ledger.mesh}.jobs.x.{first.kind}.{first.id}", b"stray")
    ledger.append(f"ap.{ledger.mesh}.call", b"stray")
    story = Story(ledger, word="false")
    assert story.schedule(how={"deps": (ledger.dep(3),)}) is MISSING
    assert story.schedule(how={"deps": (ledger.dep(4),)}) is MISSING


# --- authority -------------------------------------------------------------------------------


def test_without_a_chain_only_the_owner_authors_job_ops():
    story = Story(authority="chain")
    assert story.schedule(ALICE) is Verdict.NO_CHAIN
    assert story.lane.job is None
    assert story.schedule(OWNER) is OK
    assert story.claim(ALICE) is Verdict.NO_CHAIN
    assert story.claim(OWNER) is OK


def test_authority_is_that_of_the_ops_own_place():
    story = Story(authority="chain")
    story.schedule(OWNER)
    assert story.claim(ALICE) is Verdict.NO_CHAIN
    assert story.ledger.rules(authority="open") is OK
    assert story.claim(ALICE) is OK
    assert story.ledger.rules(authority="chain") is OK
    assert story.complete(ALICE) is Verdict.NO_CHAIN


# --- which reason comes first ----------------------------------------------------------------

NOTHING_THERE = "blake3:" + "0" * 64
BAD_DEP = ((99, "blake3:" + "0" * 64),)


@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"at": 9_000, "stamp": 0, "prev": 77, "deps": BAD_DEP}, Verdict.DRIFT),
        ({"prev": 77, "deps": BAD_DEP}, PREV),
        ({"deps": BAD_DEP}, Verdict.NO_CHAIN),
        ({"by": OWNER, "deps": BAD_DEP}, MISSING),
        ({"by": OWNER}, Verdict.NO_JOB),
    ],
    ids=["time", "predecessor", "authority", "deps", "existence"],
)
def test_the_first_broken_rule_is_the_verdict(how, verdict):
    # Alice has no chain, and what she claims does not exist.
    assert Story(authority="chain").claim(**{"by": ALICE, **how}) is verdict


@pytest.mark.parametrize(
    "how, looked_up",
    [
        ({"at": 9_000, "stamp": 0}, ()),
        ({"prev": 77}, ()),
        ({"by": ALICE}, ()),
        ({"by": OWNER, "more": BAD_DEP}, ()),
        ({"by": OWNER, "more": ((0, NOTHING_THERE),)}, ()),
        ({"by": OWNER}, (2, 3)),
    ],
    ids=["time", "predecessor", "authority", "the future", "no place", "nothing wrong"],
)
def test_nobody_reads_what_an_op_names_that_is_refused_anyway(how, looked_up):
    story = Story(authority="chain")
    assert story.schedule(OWNER) is OK
    ledger = story.ledger
    ledger.append(f"ap.{ledger.mesh}.jobs.job.{story.kind}.{story.id}", b"junk")
    stamp = how.pop("stamp", None)
    body = ClaimBody(kind=story.kind, job=story.id, lease_ms=10_000)
    # One place twice, and a control record, which is at hand.
    deps = (ledger.dep(2), ledger.dep(2), ledger.dep(3), ledger.dep(1), *how.pop("more", ()))
    draft = ledger.draft(JobClaim, body, how.pop("by", OWNER), deps=deps, **{"prev": 3, **how})
    commit_ms = T0 + (ledger.now if stamp is None else stamp)
    opened = opened_record.open_record(
        PROTOCOL, ledger.mesh, 4, commit_ms, draft.subject, draft.payload
    )
    control = ledger.history.at(4, commit_ms)
    outcome = judge(control, story.lane, opened)
    assert (outcome.records if isinstance(outcome, Needs) else ()) == looked_up


def test_existence_comes_before_order_and_order_before_the_transition():
    assert Story().claim(ALICE, at=0) is Verdict.NO_JOB
    story = called()
    assert story.claim(BOB, at=0) is Verdict.STALE
    assert story.claim(BOB, at=-1) is Verdict.STALE
    assert story.claim(OWNER, at=0, lease_ms=1) is Verdict.EQUIVOCATION
    assert story.claim(BOB, at=0, logical=1) is OK
