"""Seals: what is accepted, what is refused and why, and what a leaf holds (spec §7.5)."""

import json

import pytest

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.families.seals.state import SealLane, leaf_of
from antiphon.core.family import UNSEEN_ROOT, Reads
from antiphon.core.opened_record import open_record
from antiphon.core.proof.merkle import Frontier
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import subjects
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import judge
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger, Story

WRONG = "0" * 64


def sealed_by_carol(**rules) -> Ledger:
    """A mesh with a few records, of which one is rejected; Carol coordinates."""
    ledger = Ledger(**rules)
    assert ledger.coordinator(CAROL, at=10) is Verdict.OK
    story = Story(ledger)
    assert story.schedule(how={"at": 20}) is Verdict.OK
    assert story.claim(ALICE, at=30) is Verdict.OK
    assert story.claim(BOB, at=40) is Verdict.HELD
    ledger.now = 100
    return ledger


def seal(ledger: Ledger, by=CAROL, *, upto=None, root=None, size=None, state=None, **how):
    upto = len(ledger.log) if upto is None else upto
    mark = ledger.reader.mark_at(min(upto, len(ledger.log)))
    body = SealBody(
        upto=upto,
        size=mark.size if size is None else size,
        root=mark.root if root is None else root,
        state=state,
    )
    return ledger.put(MeshSeal, body, by, **how)


def test_a_leaf_is_a_version_and_json_of_place_time_subject_digest_and_verdict():
    leaf = leaf_of(7, 1_000, "ap.m.seal", b"bytes", "stale")
    assert leaf[:1] == b"\x01"
    assert json.loads(leaf[1:]) == [7, 1_000, "ap.m.seal", digest(b"bytes"), "stale", 0]
    assert b" " not in leaf


def test_the_root_covers_rejected_records_and_earlier_seals():
    ledger = sealed_by_carol()
    assert seal(ledger) is Verdict.OK
    assert seal(ledger, root=WRONG) is Verdict.SEAL
    tree = Frontier()
    for record, verdict in zip(ledger.log, ledger.verdicts, strict=True):
        place = [record.seq, record.commit_ms, record.subject]
        # The lane's accepted record before a rejected one: Alice's claim, and the first seal.
        after = {Verdict.HELD: 4, Verdict.SEAL: 6}.get(verdict, 0)
        leaf = [*place, digest(record.payload), verdict.value, after]
        tree.append(b"\x01" + json.dumps(leaf, separators=(",", ":")).encode())
    assert seal(ledger, root=tree.root().hex(), size=7, upto=7) is Verdict.OK


@pytest.mark.req("M15")
@pytest.mark.parametrize(
    "how, verdict",
    [
        ({"by": ALICE}, "not_coordinator"),
        ({"by": OWNER}, "not_coordinator"),
        ({"root": WRONG}, "seal"),
        ({"size": 4}, "seal"),
        ({"upto": 6, "size": 5}, "seal"),
        ({"upto": 600}, "seal"),
        ({"state": digest(b"")}, "ok"),
        ({"prev": 5}, "prev"),
        ({"at": 9_999, "stamp": 100}, "drift"),
        ({"deps": ((1, digest(b"")),)}, "missing_dep"),
        ({"upto": 3}, "ok"),
        ({}, "ok"),
    ],
)
def test_a_seal_is_the_coordinators_and_matches_the_log(how, verdict):
    assert seal(sealed_by_carol(), **how).value == verdict


def test_seals_grow_in_time_and_in_what_they_cover():
    ledger = sealed_by_carol()
    assert seal(ledger, at=200) is Verdict.OK
    assert seal(ledger, upto=5, at=210) is Verdict.STALE
    assert seal(ledger, at=200) is Verdict.EQUIVOCATION
    assert seal(ledger, at=190, stamp=220) is Verdict.STALE
    assert seal(ledger, at=230) is Verdict.OK


def test_a_rejected_seal_moves_nothing_but_the_tail():
    ledger = sealed_by_carol()
    assert seal(ledger, ALICE, at=500) is Verdict.NOT_COORDINATOR
    assert ledger.reader.seals == SealLane((6,))
    assert seal(ledger, prev=0, at=510) is Verdict.PREV
    assert seal(ledger, at=400, stamp=520) is Verdict.OK


def test_a_seal_that_fails_for_its_root_alone_orders_those_that_follow():
    ledger = sealed_by_carol()
    assert seal(ledger, root=WRONG, at=500) is Verdict.SEAL
    assert (ledger.reader.seals.state.seq, ledger.reader.seals.upto) == (6, 5)
    assert seal(ledger, at=400, stamp=510) is Verdict.STALE
    assert seal(ledger, upto=5, size=5, at=520) is Verdict.STALE
    assert seal(ledger, at=530) is Verdict.OK


def test_the_office_goes_with_the_designation():
    ledger = sealed_by_carol()
    assert seal(ledger) is Verdict.OK
    assert ledger.coordinator(BOB) is Verdict.OK
    assert seal(ledger) is Verdict.NOT_COORDINATOR
    assert seal(ledger, BOB) is Verdict.OK


def test_a_node_that_sees_some_records_only_judges_all_but_the_root():
    ledger = sealed_by_carol()
    body = SealBody(upto=5, size=5, root=WRONG)
    for by, verdict in ((CAROL, Verdict.UNSEEN), (ALICE, Verdict.NOT_COORDINATOR)):
        draft = ledger.draft(MeshSeal, body, by)
        opened = open_record(
            PROTOCOL, ledger.mesh, 6, T0 + ledger.now, draft.subject, draft.payload
        )
        reads = Reads(mark=UNSEEN_ROOT)
        told = judge(ledger.history.at(6, T0), SealLane(), opened, reads)
        assert told.verdict is verdict


def test_a_seal_is_an_op_on_its_own_subject_only():
    ledger = Ledger()
    draft = ledger.draft(MeshSeal, SealBody(upto=1, size=1, root=WRONG), OWNER)
    lane = job_subjects.call(ledger.mesh, "normal", "render", Story(ledger).id)
    for subject in (lane, subjects.control(ledger.mesh, "rules")):
        assert ledger.append(subject, draft.payload, stamp=10) is Verdict.SUBJECT
    assert seal(ledger, OWNER) is Verdict.OK


def test_two_seals_with_one_timestamp_are_evidence():
    ledger = Ledger()
    shown = [
        ledger.draft(MeshSeal, SealBody(upto=n, size=1, root=WRONG), BOB, at=50).payload.decode()
        for n in (1, 2)
    ]
    body = EvidenceBody(node=BOB.did, first=shown[0], second=shown[1])
    assert ledger.put(MeshEvidence, body, ALICE, at=60) is Verdict.OK


def test_a_quarantined_coordinator_seals_nothing():
    ledger = sealed_by_carol()
    shown = [
        ledger.draft(MeshSeal, SealBody(upto=n, size=1, root=WRONG), CAROL, at=150).payload.decode()
        for n in (1, 2)
    ]
    body = EvidenceBody(node=CAROL.did, first=shown[0], second=shown[1])
    assert ledger.put(MeshEvidence, body, ALICE) is Verdict.OK
    assert seal(ledger) is Verdict.QUARANTINED
