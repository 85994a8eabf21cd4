"""Who may do what: chains of delegations on the log, and what each missing link is called."""

import json

import pytest
from nacl import bindings

from antiphon.core.authority.chain_check import arguments_of
from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import Retry, ScheduleBody
from antiphon.core.record import codec, subjects
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import Payload, Policy, issue
from tests.core.authors import ALICE, BOB, CAROL, OWNER, Author, sign_bytes
from tests.core.ledger import T0, Ledger, Reader, Story, manifest

OK = Verdict.OK
DAY_MS = 86_400_000
NONCE = b"twelve bytes"


def delegation(
    by: Author, to: Author, cmd="/job", pol=(), until_ms=DAY_MS, subject=OWNER.did, nonce=NONCE
):
    payload = Payload(
        iss=by.did,
        aud=to.did,
        sub=subject,
        cmd=cmd,
        pol=Policy(list(pol)),
        nonce=nonce,
        exp=(T0 + until_ms) // 1000,
    )
    return issue(payload, lambda message: bindings.crypto_sign(message, by.secret)[:64])


class Court:
    """A closed mesh on which rights are handed out."""

    def __init__(self) -> None:
        self.ledger = Ledger(authority="chain")

    def grant(self, by: Author, to: Author, *, brought_by: Author | None = None, **terms) -> str:
        """Issue a delegation and put it on the log; its cid."""
        granted = delegation(by, to, **terms)
        assert self.bring(granted, brought_by or by) is OK
        return granted.cid

    def bring(self, granted, by: Author, **how) -> Verdict:
        body = DelegateBody(token=token_of(granted.raw))
        return self.ledger.put(UcanDelegate, body, by, **how)

    def revoke(self, cid: str, by: Author, **how) -> Verdict:
        return self.ledger.put(UcanRevoke, RevokeBody(cid=cid), by, **how)

    def job(self, kind="render.frame", word="true") -> Story:
        story = Story(self.ledger, kind=kind, word=word)
        assert story.schedule(OWNER) is OK
        return story


RENDER = [["like", ".kind", "render.*"]]


def test_without_a_chain_nobody_but_the_owner_has_any_effect():
    court = Court()
    story = Story(court.ledger, kind="render.frame")
    assert story.schedule(ALICE) is Verdict.NO_CHAIN
    assert story.schedule(OWNER) is OK
    assert story.claim(ALICE) is Verdict.NO_CHAIN
    assert story.state == "pending"


@pytest.mark.req("M1")
def test_one_key_may_be_owner_coordinator_caller_and_worker_at_once():
    court = Court()
    assert court.ledger.coordinator(OWNER) is OK
    story = Story(court.ledger, kind="render.frame")
    assert story.schedule(OWNER, not_before=T0) is OK
    assert story.offer(OWNER) is OK
    assert story.claim(OWNER) is OK
    assert story.complete(OWNER) is OK


def test_a_chain_admits_what_it_covers_and_nothing_else():
    court = Court()
    chain = (court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER),)
    render, build = court.job("render.frame"), court.job("build.wheel", "make")
    assert build.claim(ALICE, auth=chain) is Verdict.POLICY
    assert render.claim(BOB, auth=chain) is Verdict.NO_CHAIN, "it is Alice's, not Bob's"
    assert render.claim(ALICE, auth=chain) is OK
    assert render.complete(ALICE, auth=chain) is Verdict.COMMAND
    wider = (court.grant(OWNER, ALICE, cmd="/job/complete", pol=RENDER, nonce=b"another nonce"),)
    assert render.complete(ALICE, auth=wider) is OK


@pytest.mark.parametrize(
    "statement, is_admitted",
    [
        (["==", ".priority", "normal"], True),
        (["!=", ".priority", "normal"], False),
        (["not", ["==", ".priority", "normal"]], False),
        (["<=", ".retry.base_ms", 1_000], True),
        ([">", ".retry.base_ms", 1_000], False),
        (["==", ".retry.attempts", None], True),
        (["==", ".requires", []], True),
        (["==", ".manifest.timeout", 30], True),
    ],
)
def test_policies_see_fields_that_are_at_their_default(statement, is_admitted):
    """A record leaves them out, and what is left out must not slip through."""
    court = Court()
    chain = (court.grant(OWNER, ALICE, cmd="/job/schedule", pol=[statement]),)
    story = Story(court.ledger, kind="render.frame")
    verdict = story.schedule(ALICE, how={"auth": chain})
    assert verdict is (OK if is_admitted else Verdict.POLICY)


def test_what_a_policy_sees_is_what_would_be_written_and_the_defaults():
    body = ScheduleBody(kind="a", manifest=manifest(), priority="low", retry=Retry(attempts=7))
    seen = arguments_of(body)
    written = json.loads(codec.encode(body))
    del written["retry"]
    assert {name: seen[name] for name in written} == written
    assert seen["retry"] == {"attempts": 7, "base_ms": 1_000, "cap_ms": 60_000, "give_up_on": []}
    assert (seen["priority"], seen["start_by"]) == ("low", None)
    assert arguments_of(body, {"kind", "nothing"}) == {"kind": "a"}


def test_a_delegation_counts_from_its_place_on_the_log():
    court = Court()
    granted = delegation(OWNER, ALICE)
    story = court.job()
    assert story.claim(ALICE, auth=(granted.cid,)) is Verdict.NO_CHAIN
    assert court.bring(granted, OWNER) is OK
    assert story.claim(ALICE, auth=(granted.cid,)) is OK


def test_a_holder_hands_on_no_more_than_it_has():
    court = Court()
    mine = court.grant(OWNER, ALICE, pol=RENDER)
    narrowed = court.grant(ALICE, BOB, cmd="/job/claim")
    story, other = court.job(), court.job("build.wheel", "make")
    assert story.claim(BOB, auth=(mine, narrowed)) is OK
    assert other.claim(BOB, auth=(mine, narrowed)) is Verdict.POLICY
    widened = court.grant(ALICE, CAROL, cmd="/", nonce=b"another nonce")
    assert court.job(word="x").claim(CAROL, auth=(mine, widened)) is Verdict.COMMAND
    assert court.job(word="y").claim(BOB, auth=(narrowed,)) is Verdict.NO_CHAIN, "no root"


@pytest.mark.parametrize(
    "at, stamp",
    [(2_001, 2_001), (1_500, 3_000), (3_000, 1_500)],
    ids=["late", "dated back", "committed before its time"],
)
def test_time_bounds_hold_for_the_authors_clock_and_for_the_commit(at, stamp):
    court = Court()
    chain = (court.grant(OWNER, ALICE, until_ms=1_000),)
    story = court.job()
    assert story.claim(ALICE, auth=chain, at=at, stamp=stamp) is Verdict.CHAIN_EXPIRED


def test_a_claim_dated_thursday_and_committed_on_saturday_is_expired():
    court = Court()
    thursday, saturday = DAY_MS, 3 * DAY_MS
    chain = (court.grant(OWNER, ALICE, until_ms=2 * DAY_MS),)
    story = court.job()
    assert story.claim(ALICE, auth=chain, at=thursday, stamp=saturday) is Verdict.CHAIN_EXPIRED


def test_a_revocation_takes_effect_at_its_place_for_the_whole_subtree():
    court = Court()
    mine = court.grant(OWNER, ALICE)
    theirs = court.grant(ALICE, BOB)
    before, after = court.job(word="before"), court.job(word="after")
    assert before.claim(BOB, auth=(mine, theirs)) is OK
    assert before.complete(BOB, auth=(mine, theirs)) is OK
    assert court.revoke(mine, OWNER) is OK
    assert after.claim(BOB, auth=(mine, theirs)) is Verdict.REVOKED
    assert after.claim(ALICE, auth=(mine,)) is Verdict.REVOKED
    assert before.state == "succeeded", "what was committed before stays"


def test_only_those_above_a_delegation_revoke_it():
    court = Court()
    mine = court.grant(OWNER, ALICE)
    theirs = court.grant(ALICE, BOB)
    assert court.revoke(theirs, BOB) is Verdict.NO_CHAIN
    assert court.revoke(theirs, CAROL) is Verdict.NO_CHAIN
    assert court.revoke(mine, ALICE) is Verdict.NO_CHAIN
    assert court.job(word="a").claim(BOB, auth=(mine, theirs)) is OK
    assert court.revoke(theirs, ALICE) is OK
    assert court.job(word="b").claim(BOB, auth=(mine, theirs)) is Verdict.REVOKED
    assert court.revoke("b" + "a" * 58, OWNER) is Verdict.NO_CHAIN, "unknown"


def test_a_lease_held_under_a_revoked_delegation_ends_there():
    court = Court()
    chain = (court.grant(OWNER, ALICE),)
    other = (court.grant(OWNER, BOB),)
    story = court.job()
    assert story.claim(ALICE, auth=chain) is OK
    fence = story.fence
    assert story.claim(BOB, auth=other) is Verdict.HELD
    assert court.revoke(chain[0], OWNER) is OK
    assert story.complete(ALICE, fence=fence, auth=chain) is Verdict.REVOKED
    assert story.claim(BOB, auth=other) is OK, "free from there on"
    assert story.fence > fence
    assert story.job.attempts == 0, "a revocation is not the job's failure"


def test_a_renewal_under_a_fresh_delegation_outlives_the_old_one():
    court = Court()
    old = (court.grant(OWNER, ALICE),)
    new = (court.grant(OWNER, ALICE, nonce=b"another nonce"),)
    story = court.job()
    assert story.claim(ALICE, auth=old) is OK
    assert story.claim(ALICE, fence=story.fence, auth=new) is OK
    assert court.revoke(old[0], OWNER) is OK
    assert story.complete(ALICE, auth=new) is OK


@pytest.mark.req("M15")
def test_the_coordinator_announces_and_the_caller_cancels_without_a_chain():
    court = Court()
    assert court.ledger.coordinator(CAROL) is OK
    waiting = Story(court.ledger, kind="render.frame", word="wait")
    assert waiting.schedule(OWNER, not_before=T0) is OK
    assert waiting.offer(BOB) is Verdict.NO_CHAIN
    assert waiting.offer(CAROL) is OK
    chain = (court.grant(OWNER, BOB, cmd="/job/schedule"),)
    mine = Story(court.ledger, kind="render.frame", word="mine")
    assert mine.schedule(BOB, how={"auth": chain}) is OK
    assert mine.cancel(ALICE) is Verdict.NO_CHAIN
    assert mine.cancel(BOB) is OK


def test_a_delegation_is_brought_by_those_whom_it_concerns_once():
    court = Court()
    granted = delegation(OWNER, ALICE)
    assert court.bring(granted, BOB) is Verdict.NO_CHAIN
    assert court.bring(granted, ALICE) is OK
    assert court.bring(granted, OWNER) is Verdict.ALREADY


def test_a_forged_delegation_is_refused_on_the_log():
    court = Court()
    forged = delegation(ALICE, BOB)
    payload = Payload(
        iss=OWNER.did,
        aud=BOB.did,
        sub=OWNER.did,
        cmd="/job",
        pol=Policy([]),
        nonce=NONCE,
        exp=None,
    )
    in_the_owners_name = issue(
        payload, lambda message: bindings.crypto_sign(message, ALICE.secret)[:64]
    )
    assert court.bring(in_the_owners_name, BOB) is Verdict.SIGNATURE
    assert court.bring(forged, ALICE) is OK, "she may say so; it leads nowhere"
    assert court.job().claim(BOB, auth=(forged.cid,)) is Verdict.NO_CHAIN


@pytest.mark.parametrize("token", ["AAAA", "QUJD", "A", "AB"])
def test_a_token_that_is_no_delegation_is_malformed(token):
    ledger = Ledger(authority="chain")
    op = {
        "author": OWNER.did,
        "body": {"token": token},
        "hlc": [T0 + 1, 0],
        "mesh": ledger.mesh,
        "prev": 0,
        "type": "ucan.delegate",
        "v": 1,
    }
    subject = subjects.control(ledger.mesh, "ucan.x")
    assert ledger.append(subject, sign_bytes(OWNER, codec.encode(op))) is Verdict.MALFORMED


def test_the_light_and_the_late_judge_as_those_who_were_there():
    court = Court()
    mine = court.grant(OWNER, ALICE)
    theirs = court.grant(ALICE, BOB, cmd="/job/claim")
    story = court.job()
    story.claim(BOB, auth=(mine, theirs))
    court.revoke(mine, OWNER)
    story.claim(ALICE, auth=(mine,))
    story.claim(OWNER)
    story.complete(OWNER)
    ledger = court.ledger
    control = subjects.all_control(ledger.mesh)
    late = Reader(ledger.mesh, ledger.log)
    first = [r for r in ledger.log if subjects.matches(control, r.subject)]
    rest = [r for r in ledger.log if not subjects.matches(control, r.subject)]
    judged = {record.seq: late.judge(record) for record in (*first, *rest)}
    assert [judged[seq] for seq in sorted(judged)] == ledger.verdicts
    assert late.lanes == ledger.reader.lanes


def test_a_delegation_that_names_a_mesh_is_good_on_that_mesh_only():
    here = Court()
    for mesh, verdict in ((here.ledger.mesh, OK), ("elsewhere", Verdict.MESH)):
        payload = Payload(
            iss=OWNER.did,
            aud=ALICE.did,
            sub=OWNER.did,
            cmd="/job",
            pol=Policy([]),
            nonce=NONCE,
            exp=None,
            meta={"mesh": mesh},
        )
        granted = issue(payload, lambda message: bindings.crypto_sign(message, OWNER.secret)[:64])
        assert here.bring(granted, OWNER) is verdict


@pytest.mark.req("M13")
def test_a_route_to_a_machine_admits_the_processes_that_it_passes_everything_on_to():
    court = Court()
    machine, process, friend = ALICE, BOB, CAROL
    granted = court.grant(OWNER, machine)
    passed_on = court.grant(machine, process, subject=None)
    lent = court.grant(machine, friend)
    assert court.ledger.route("render", machine) is OK
    job = court.job()
    assert job.claim(friend, auth=(granted, lent)) is Verdict.NOT_ROUTED
    assert job.claim(process, auth=(granted, passed_on)) is OK


def test_a_job_that_lost_its_holder_gets_its_time_to_start_anew():
    court = Court()
    cid = court.grant(OWNER, ALICE)
    job = Story(court.ledger, kind="render.frame")
    assert job.schedule(OWNER, start_by=T0 + 5_000) is OK
    assert job.claim(ALICE, auth=(cid,), at=1_000) is OK
    assert court.revoke(cid, OWNER, at=8_000) is OK
    again = court.grant(OWNER, BOB)
    assert job.claim(BOB, auth=(again,), at=9_000) is OK


# --- whose job it is ------------------------------------------------------------------------------


def test_a_job_is_cancelled_by_any_key_of_the_party_that_submitted_it():
    """A member's processes have keys of their own: the job of one is the job of all."""
    court = Court()
    schedules = court.grant(OWNER, ALICE, cmd="/job/schedule", pol=RENDER)
    process = (schedules, court.grant(ALICE, BOB, cmd="/job/schedule", nonce=b"another nonce"))
    other = (court.grant(OWNER, CAROL, cmd="/job/schedule", pol=RENDER, nonce=b"a third nonce"),)
    first = Story(court.ledger, kind="render.frame")
    assert first.schedule(ALICE, how={"auth": (schedules,)}) is OK
    assert first.cancel(CAROL, auth=other) is Verdict.COMMAND
    assert first.cancel(BOB) is Verdict.NO_CHAIN, "nothing shows whose key it is"
    assert first.cancel(BOB, auth=(schedules,)) is Verdict.NO_CHAIN, "that is Alice's"
    assert first.cancel(BOB, auth=process) is OK
    second = Story(court.ledger, kind="render.frame", word="other")
    assert second.schedule(BOB, how={"auth": process}) is OK
    assert second.cancel(ALICE, auth=(schedules,)) is OK


def test_a_key_of_the_party_cancels_nothing_once_its_own_delegation_or_the_jobs_has_ended():
    court = Court()
    schedules = court.grant(OWNER, ALICE, cmd="/job/schedule", pol=RENDER)
    passed_on = court.grant(ALICE, BOB, cmd="/job/schedule", nonce=b"another nonce")
    story = Story(court.ledger, kind="render.frame")
    assert story.schedule(ALICE, how={"auth": (schedules,)}) is OK
    assert court.revoke(passed_on, ALICE) is OK
    assert story.cancel(BOB, auth=(schedules, passed_on)) is Verdict.REVOKED
    again = court.grant(ALICE, BOB, cmd="/job/schedule", nonce=b"a third nonce")
    assert court.revoke(schedules, OWNER) is OK
    assert story.cancel(BOB, auth=(schedules, again)) is Verdict.REVOKED
    assert story.cancel(ALICE, auth=(schedules,)) is Verdict.REVOKED
