"""Equivocation shown on the log, quarantine, readmission; and an owner key that was lost."""

import tracemalloc

import pytest

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.mesh.ops import (
    EvidenceBody,
    Genesis,
    MeshEvidence,
    MeshGenesis,
    MeshReadmit,
    MeshRecover,
    ReadmitBody,
    RecoverBody,
)
from antiphon.core.opened_record import open_record
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import delegation
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY, Author, signed
from tests.core.ledger import T0, Ledger, Story

OK = Verdict.OK


def two_faces(ledger: Ledger, by=ALICE, *, at=5, other_at=5, same=False):
    """Two ops that `by` signed, with one timestamp unless said otherwise."""
    kinds = ["a", "a" if same else "b"]
    return [
        ledger.draft(
            JobCancel, CancelBody(kind=kind, job="1" * 64), by, at=when, prev=0
        ).payload.decode()
        for kind, when in zip(kinds, [at, other_at], strict=True)
    ]


def show(ledger: Ledger, pair, *, node=ALICE, by=BOB, **how) -> Verdict:
    body = EvidenceBody(node=node.did, first=pair[0], second=pair[1])
    return ledger.put(MeshEvidence, body, by, **how)


@pytest.mark.req("M11")
def test_an_author_shown_to_equivocate_is_quarantined_until_the_owner_readmits_it():
    story = Story()
    ledger = story.ledger
    story.schedule()
    assert show(ledger, two_faces(ledger), at=100) is OK
    assert story.claim(ALICE, at=200) is Verdict.QUARANTINED
    assert show(ledger, two_faces(ledger, ALICE), by=ALICE, at=300) is Verdict.QUARANTINED
    assert show(ledger, two_faces(ledger), at=400) is Verdict.ALREADY
    readmit = ReadmitBody(node=ALICE.did)
    assert ledger.put(MeshReadmit, readmit, BOB, at=500) is Verdict.NOT_OWNER
    assert ledger.put(MeshReadmit, readmit, OWNER, at=600) is OK
    assert story.claim(ALICE, at=700) is OK


@pytest.mark.req("M11")
def test_a_quarantine_ends_the_leases_that_are_held_and_not_later_ones():
    story = Story()
    story.schedule()
    assert story.claim(ALICE, at=50) is OK
    fence = story.fence
    assert show(story.ledger, two_faces(story.ledger), at=100) is OK
    assert story.complete(ALICE, at=150) is Verdict.QUARANTINED
    assert story.claim(BOB, at=200) is OK
    assert story.fence > fence
    assert story.job.attempts == 0
    readmit = ReadmitBody(node=ALICE.did)
    assert story.ledger.put(MeshReadmit, readmit, OWNER, at=300) is OK
    later = Story(story.ledger, word="later")
    later.schedule(how={"at": 400})
    assert later.claim(ALICE, at=500) is OK
    assert later.complete(ALICE, at=600) is OK


@pytest.mark.parametrize(
    "case", ["one op twice", "two timestamps", "another author", "forged", "garbage", "the owner"]
)
def test_what_proves_nothing_quarantines_nobody(case):
    ledger = Ledger()
    pair, node = two_faces(ledger), ALICE
    match case:
        case "one op twice":
            pair = two_faces(ledger, same=True)
        case "two timestamps":
            pair = two_faces(ledger, other_at=6)
        case "another author":
            node = CAROL
        case "forged":
            pair = [pair[0], pair[1].replace(ALICE.did, BOB.did)]
        case "garbage":
            pair = ["", "{}"]
        case "the owner":
            pair, node = two_faces(ledger, OWNER), OWNER
    assert show(ledger, pair, node=node, at=100) is Verdict.PROOF
    assert ledger.history.current.quarantined == []


def test_evidence_from_another_mesh_proves_nothing_here():
    elsewhere = Ledger(attempts=7)
    assert show(Ledger(), two_faces(elsewhere), at=100) is Verdict.PROOF


def test_geneses_of_other_meshes_prove_nothing_though_they_name_no_mesh():
    def founding(name: str) -> str:
        body = Genesis(name=name, owner=ALICE.did, recovery=BOB.did, rules=Rules())
        op = MeshGenesis(
            v=1, mesh="", author=ALICE.did, hlc=(T0, 0), prev=0, deps=(), auth=(), body=body
        )
        return signed(ALICE, op).payload.decode()

    pair = [founding("one"), founding("two")]
    assert show(Ledger(), pair, node=ALICE, at=100) is Verdict.PROOF


def test_old_evidence_says_nothing_after_a_readmission_and_new_evidence_does():
    ledger = Ledger()
    old = two_faces(ledger)
    assert show(ledger, old, at=100) is OK
    readmit = ReadmitBody(node=ALICE.did)
    assert ledger.put(MeshReadmit, readmit, OWNER, at=200) is OK
    assert show(ledger, old, at=300) is Verdict.ALREADY
    assert ledger.history.current.quarantined == []
    assert show(ledger, two_faces(ledger, at=350, other_at=350), at=400) is OK
    assert ALICE.did in ledger.history.current.quarantined


def test_evidence_dated_ahead_of_its_commit_proves_nothing():
    """Or it would outdate whatever is shown after a readmission."""
    ledger = Ledger()
    assert show(ledger, two_faces(ledger, at=2_101, other_at=2_101), at=100) is Verdict.PROOF
    assert show(ledger, two_faces(ledger, at=2_100, other_at=2_100), at=100) is OK


def test_evidence_counts_against_keys_that_hold_something():
    ledger = Ledger(authority="chain")

    def give(by, to, nonce):
        token = token_of(delegation(by, to, nonce=nonce).raw)
        assert ledger.put(UcanDelegate, DelegateBody(token=token), by) is OK

    assert show(ledger, two_faces(ledger)) is Verdict.ALREADY, "nothing of it counts anyway"
    give(CAROL, ALICE, b"a stranger's")
    assert show(ledger, two_faces(ledger)) is Verdict.ALREADY
    give(OWNER, CAROL, b"the owner's!")
    assert show(ledger, two_faces(ledger)) is OK
    assert ledger.coordinator(BOB) is OK
    assert show(ledger, two_faces(ledger, BOB), node=BOB, by=CAROL) is OK


def test_what_is_shown_against_many_weighs_as_much_as_it_did_against_few():
    ledger = Ledger()
    pairs = []
    for n in range(400):
        who = Author(f"key {n}")
        pairs.append((who, two_faces(ledger, who, at=n, other_at=n)))
    weights = []
    for half in (pairs[:200], pairs[200:]):
        tracemalloc.start()
        for who, pair in half:
            body = EvidenceBody(node=who.did, first=pair[0], second=pair[1])
            draft = ledger.draft(MeshEvidence, body, BOB)
            opened = open_record(
                PROTOCOL,
                ledger.mesh,
                ledger.history.applied + 1,
                T0 + ledger.now,
                draft.subject,
                draft.payload,
            )
            assert ledger.history.apply(opened) is OK
        weights.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert weights[1] < 1.5 * weights[0]


def test_the_recovery_key_replaces_a_lost_owner_from_its_place_on():
    ledger = Ledger()
    body = RecoverBody(owner=BOB.did, recovery=CAROL.did)
    assert ledger.put(MeshRecover, body, OWNER, at=10) is Verdict.NOT_OWNER
    assert ledger.put(MeshRecover, body, ALICE, at=20) is Verdict.NOT_OWNER
    assert ledger.put(MeshRecover, body, RECOVERY, at=30) is OK
    assert ledger.route("a", ALICE, OWNER, at=40) is Verdict.NOT_OWNER, (
        "the old key is no longer it"
    )
    assert ledger.route("a", ALICE, BOB, at=50) is OK
    current = ledger.history.current
    assert (current.owner, current.recovery, current.coordinator) == (BOB.did, CAROL.did, BOB.did)
    assert ledger.history.at(2, T0).owner == OWNER.did, "what came before is judged as before"
    assert ledger.put(MeshRecover, body, RECOVERY, at=60) is Verdict.NOT_OWNER


def test_a_recovery_that_is_not_newer_than_the_owners_last_word_is_stale():
    ledger = Ledger()
    assert ledger.route("a", ALICE, at=500) is OK
    body = RecoverBody(owner=BOB.did, recovery=CAROL.did)
    assert ledger.put(MeshRecover, body, RECOVERY, at=400, stamp=600) is Verdict.STALE
    assert ledger.history.current.owner_hlc[0] == T0 + 500
