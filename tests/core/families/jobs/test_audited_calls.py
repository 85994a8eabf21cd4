"""Where model calls are audited, a completion names a snapshot of each; every reader sees it."""

import pytest
from nacl import bindings

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import AUDIT, Terms
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.ops import MAX_ARTIFACTS
from antiphon.core.families.jobs.replicas import fingerprint
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE
from antiphon.core.proof.output import Output, Stored
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import Payload, Policy, issue
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import LEASE_MS, Ledger, Story

RESULT = Output(name="result", type="application/json", text="1")


def content(number):
    return {"digest": digest(f"call {number}".encode()), "size": 6}


def named(*numbers):
    return tuple(
        Output(
            name=f"snapshot-{one}",
            type=SNAPSHOT_TYPE,
            stored=Stored(hash=content(one)["digest"], size=6),
        )
        for one in numbers
    )


def running(calls=0, *, audit=True, who=ALICE):
    story = Story(audit_inference=audit)
    story.schedule(CAROL)
    assert story.claim(who, begin=True) is Verdict.OK
    for number in range(calls):
        stores(story, number)
    return story


def stores(story, number, who=ALICE):
    verdict = story.artifact(who, as_="snapshot", value=None, **content(number))
    assert verdict is Verdict.OK


@pytest.mark.req("M27")
def test_an_audited_completion_that_says_nothing_of_its_calls_is_rejected():
    story = running()
    assert story.complete() is Verdict.AUDIT
    assert story.complete(calls=0) is Verdict.OK


@pytest.mark.req("M26", "M27")
@pytest.mark.parametrize(
    "calls, outputs",
    [
        (2, ()),
        (2, named(0)),
        (1, named(0)),
        (0, ()),
        (2, named(1, 0)),
        (2, named(0, 0)),
        (2, named(0, 7)),
        (3, named(0, 1)),
        (1, named(0, 1)),
    ],
)
def test_a_completion_that_names_fewer_or_other_snapshots_than_its_calls_is_rejected(
    calls, outputs
):
    story = running(2)
    assert story.complete(calls=calls, outputs=(RESULT, *outputs)) is Verdict.AUDIT
    assert story.complete(calls=2, outputs=(*named(0, 1), RESULT)) is Verdict.OK


@pytest.mark.req("M27")
def test_a_failure_accounts_for_its_calls_too():
    story = running(1)
    assert story.complete(status="failed") is Verdict.AUDIT
    assert story.complete(status="failed", calls=1, outputs=named(0)) is Verdict.OK


def test_an_output_of_another_type_is_no_snapshot():
    story = running(1)
    plain = Output(name="snapshot-0", stored=Stored(hash=content(0)["digest"], size=6))
    assert story.complete(calls=1, outputs=(plain,)) is Verdict.AUDIT


def test_a_small_snapshot_may_be_in_its_record():
    story = running()
    assert story.artifact(as_="snapshot", value="{}") is Verdict.OK
    text = Output(name="snapshot-0", type=SNAPSHOT_TYPE, text="{}")
    assert story.complete(calls=1, outputs=(text,)) is Verdict.OK


@pytest.mark.req("M26")
def test_the_snapshots_of_earlier_tenures_are_named_too():
    story = running(1)
    assert story.expire(at=LEASE_MS * 3) is Verdict.OK
    assert story.claim(BOB, begin=True) is Verdict.OK
    stores(story, 1, BOB)
    assert story.complete(BOB, calls=1, outputs=named(1)) is Verdict.AUDIT
    assert story.complete(BOB, calls=2, outputs=named(0, 1)) is Verdict.OK


@pytest.mark.req("M27")
def test_without_audit_nothing_has_to_be_said():
    story = running(audit=False)
    assert not story.job.is_audited
    assert story.complete() is Verdict.OK


def test_what_is_said_without_audit_must_be_so():
    story = running(1, audit=False)
    assert story.complete(calls=2, outputs=named(0)) is Verdict.AUDIT
    assert story.complete(calls=1, outputs=named(0)) is Verdict.OK


@pytest.mark.req("M27")
@pytest.mark.parametrize("before", [True, False])
def test_what_holds_at_the_claim_holds_for_the_tenure(before):
    story = running(audit=before)
    assert story.ledger.rules(authority="open", audit_inference=not before) is Verdict.OK
    assert story.job.is_audited is before
    assert story.complete() is (Verdict.AUDIT if before else Verdict.OK)


def test_the_next_tenure_is_judged_by_its_own_claim():
    story = running(1, audit=False)
    assert story.ledger.rules(authority="open", audit_inference=True) is Verdict.OK
    assert story.expire(at=LEASE_MS * 3) is Verdict.OK
    assert story.claim(BOB, begin=True) is Verdict.OK
    assert story.complete(BOB) is Verdict.AUDIT
    assert story.complete(BOB, calls=1, outputs=named(0)) is Verdict.OK


def test_a_job_has_so_many_snapshots_and_no_more(monkeypatch):
    monkeypatch.setitem(MAX_ARTIFACTS, "snapshot", 2)
    story = running(2)
    assert story.artifact(as_="snapshot") is Verdict.ARTIFACT


# --- chains ---------------------------------------------------------------------------------------


def chained(*links):
    """A job on a closed mesh that Alice claimed under these delegations, the owner's first."""
    ledger = Ledger(authority="chain")
    cids = []
    for by, to, meta in links:
        granted = issue(claims_of(by, to, meta), lambda text, by=by: sign(by, text))
        body = DelegateBody(token=token_of(granted.raw))
        assert ledger.put(UcanDelegate, body, by) is Verdict.OK
        cids.append(granted.cid)
    story = Story(ledger)
    assert story.schedule(OWNER) is Verdict.OK
    assert story.claim(ALICE, begin=True, auth=tuple(cids)) is Verdict.OK
    return story, tuple(cids)


def claims_of(by, to, meta):
    return Payload(
        iss=by.did,
        aud=to.did,
        sub=OWNER.did,
        cmd="/job",
        pol=Policy([]),
        nonce=b"twelve bytes",
        exp=None,
        meta=meta,
    )


def sign(by, text):
    return bindings.crypto_sign(text, by.secret)[:64]


AUDITED = {AUDIT: True}


@pytest.mark.req("M27")
@pytest.mark.parametrize(
    "first, second, in_force",
    [
        (AUDITED, {"alias": "b"}, True),
        ({"alias": "a"}, AUDITED, True),
        (AUDITED, AUDITED, True),
        ({"alias": "a"}, {"alias": "b"}, False),
        ({AUDIT: "yes"}, {AUDIT: 1}, False),
    ],
)
def test_a_link_anywhere_in_the_chain_puts_audit_in_force(first, second, in_force):
    story, auth = chained((OWNER, BOB, first), (BOB, ALICE, second))
    assert story.job.is_audited is in_force
    assert story.complete(auth=auth) is (Verdict.AUDIT if in_force else Verdict.OK)


def test_the_owner_itself_is_audited_by_its_rule_alone():
    story = Story(authority="chain", audit_inference=True)
    story.schedule(OWNER)
    assert story.claim(OWNER, begin=True) is Verdict.OK
    assert story.complete(OWNER) is Verdict.AUDIT


def test_the_words_of_a_grant_can_ask_for_audit():
    terms = Terms(can=("claim",), audit=True)
    made = PROTOCOL.rights.payloads(
        terms, issuer=OWNER.did, audience=ALICE.did, owner=OWNER.did, nonce=bytes
    )
    assert all(one.meta[AUDIT] is True for one in made)


def test_replicas_are_compared_without_their_snapshots():
    result = (RESULT,)
    assert fingerprint((*result, *named(0))) == fingerprint((*named(1), *result))
    files = (Output(name="a.txt", text="a"),)
    assert fingerprint((*files, *named(0))) == fingerprint(files)
