"""Everyone can say why a worker got a job, and what a pending one waits for."""

from hashlib import sha256

import pytest

from antiphon.core.authority_lapse import lapses
from antiphon.core.families.jobs.table import standing
from antiphon.core.families.mesh.ops import MeshRecover, RecoverBody
from antiphon.core.history.story import tell
from antiphon.core.opened_record import OpenedRecord, open_record
from antiphon.core.policy.explanation import Explanation, SelectionReason, Waits, explain
from antiphon.core.policy.selection import Candidate
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import short_node
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import RENDER, Court
from tests.core.authority.test_quarantine import show, two_faces
from tests.core.authors import ALICE, BOB, CAROL, OWNER, RECOVERY, Author
from tests.core.ledger import T0, Ledger, Story

DRAWN = {"selection": (("render", "rendezvous"),)}


def worker(who: Author, **fields) -> Candidate:
    return Candidate(did=who.did, **{"kinds": ("render",), **fields})


def told_history(story: Story) -> list[tuple[OpenedRecord, Verdict]]:
    """The job's lane, and the control records that ended a tenure on it."""
    ledger = story.ledger
    everything = [
        (
            open_record(PROTOCOL, ledger.mesh, one.seq, one.commit_ms, one.subject, one.payload),
            verdict,
        )
        for one, verdict in zip(ledger.log, ledger.verdicts, strict=True)
    ]
    lane = [one for one in everything if one[0].subject.endswith(story.id)]
    ended = lapses(ledger.history, story.job, lane, before=len(ledger.log) + 1)
    return [one for one in everything if one in lane or one[0].seq in ended]


def explained(story: Story, *known: Candidate, at: int = 1_000) -> Explanation:
    ledger = story.ledger
    control = ledger.history.current
    job = standing(control, story.job, len(ledger.log) + 1)
    history = told_history(story)
    schedule = ledger.log[job.scheduled_seq - 1].payload
    return explain(control, job, schedule, history, known, now_ms=T0 + at)


def drawn(**fields) -> Story:
    story = Story(**DRAWN)
    story.schedule(**fields)
    return story


@pytest.mark.req("G1")
def test_candidates_stand_in_the_order_of_their_draws_with_the_digits_to_check_it():
    told = explained(drawn(), *map(worker, (ALICE, BOB, CAROL)))
    assert [lot.rank for lot in told.lots] == [0, 1, 2]
    for lot in told.lots:
        data = told.job_id.encode() + bytes.fromhex(told.seed) + lot.node.encode()
        assert lot.draw == sha256(data).hexdigest()
    assert [lot.draw for lot in told.lots] == sorted(lot.draw for lot in told.lots)
    assert (told.selection, told.because, told.prefix) == (
        "rendezvous",
        SelectionReason.RULE,
        "render",
    )
    assert told.waits_for[0].what is Waits.CLAIM


def test_whoever_is_no_candidate_stands_last_with_the_reason():
    told = explained(
        drawn(requires=("gpu",)),
        worker(ALICE, labels=("gpu=a100",)),
        worker(BOB),
        worker(CAROL, labels=("gpu",), free=0),
        worker(OWNER, kinds=("build",)),
    )
    assert told.because is SelectionReason.REQUIRES
    assert [(lot.node, lot.rank) for lot in told.lots if not lot.unfit] == [(ALICE.did, 0)]
    unfit = {lot.node: lot.unfit for lot in told.lots if lot.unfit}
    assert unfit == {BOB.did: "labels", CAROL.did: "busy", OWNER.did: "other_kinds"}


def test_under_queue_selection_nothing_is_drawn():
    story = Story()
    story.schedule()
    told = explained(story, worker(ALICE))
    assert (told.selection, told.because) == ("queue", SelectionReason.DEFAULT)
    assert [(lot.draw, lot.rank, lot.unfit) for lot in told.lots] == [("", None, "")]


def test_it_tells_who_held_the_job_and_how_each_tenure_ended():
    story = drawn()
    story.claim(ALICE, at=1_000, lease_ms=5_000)
    story.claim(ALICE, at=2_000, lease_ms=5_000, fence=story.fence)
    story.expire(at=8_000)
    story.claim(BOB, at=9_000, lease_ms=5_000)
    story.give_back(BOB, at=10_000, retry_after_ms=60_000)
    told = explained(story, worker(CAROL), at=11_000)
    assert [(one.node, one.since_ms - T0, one.how) for one in told.tenures] == [
        (ALICE.did, 1_000, "expired"),
        (BOB.did, 9_000, "gave back (drain)"),
    ]
    assert told.cooling == ((ALICE.did, T0 + 13_000),)
    assert [wait.what for wait in told.waits_for] == [Waits.RETRY]
    assert told.waits_for[0].until_ms == T0 + 70_000
    silent = {lot.node for lot in told.lots if lot.unfit == "silent"}
    assert silent == {ALICE.did, BOB.did}, "they held it once, and are not known to be there"


def test_of_a_held_job_it_shows_the_draws_as_they_were_whoever_is_busy_now():
    story = drawn()
    story.claim(ALICE)
    told = explained(story, worker(ALICE, free=0), worker(BOB, free=0))
    assert {lot.rank for lot in told.lots} == {0, 1}
    assert told.waits_for == ()
    assert told.tenures[0].how == ""


@pytest.mark.parametrize(
    "fields, known, what",
    [
        ({}, (), Waits.WORKER),
        ({}, (worker(ALICE, kinds=("build",)),), Waits.WORKER),
        ({}, (worker(ALICE, is_alive=False),), Waits.WORKER),
        ({}, (worker(ALICE, free=0),), Waits.SLOT),
        ({"requires": ("gpu", "eu")}, (worker(ALICE, labels=("eu",)),), Waits.LABELS),
        ({"not_before": T0 + 60_000}, (worker(ALICE),), Waits.TIME),
        ({"not_before": T0}, (worker(ALICE),), Waits.NODE),
        ({"concurrency": "gpu"}, (worker(ALICE),), Waits.OFFER),
    ],
)
def test_it_names_what_a_pending_job_waits_for(fields, known, what):
    assert [wait.what for wait in explained(drawn(**fields), *known).waits_for] == [what]


def test_it_names_the_time_before_the_coordinator():
    told = explained(drawn(not_before=T0 + 60_000, concurrency="gpu"))
    assert [wait.what for wait in told.waits_for] == [Waits.TIME, Waits.OFFER]
    assert told.waits_for[0].until_ms == T0 + 60_000


def test_it_names_the_labels_that_nobody_has():
    told = explained(drawn(requires=("gpu", "eu")), worker(ALICE, labels=("eu",)), worker(BOB))
    assert told.waits_for[0].labels == ("gpu",)


def test_it_names_the_route():
    ledger = Ledger(**DRAWN)
    ledger.route("render", BOB)
    story = Story(ledger)
    story.schedule()
    told = explained(story, worker(ALICE))
    assert told.route == BOB.did
    assert (told.waits_for[0].what, told.waits_for[0].node) == (Waits.ROUTE, BOB.did)


def test_it_says_when_those_who_are_there_may_not_claim():
    court = Court()
    story = court.job("render.frame")
    alice = worker(ALICE, kinds=("render.frame",))
    told = explained(story, alice)
    assert told.waits_for[0].what is Waits.AUTHORITY
    assert told.lots[0].unfit == "no_chain"
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    assert explained(story, alice).waits_for[0].what is Waits.CLAIM


def test_a_sole_worker_whose_tenure_expired_is_waited_for():
    story = drawn()
    story.claim(ALICE, at=1_000, lease_ms=5_000)
    story.expire(at=7_000)
    (wait,) = explained(story, worker(ALICE), at=8_000).waits_for
    assert (wait.what, wait.until_ms) == (Waits.COOLDOWN, T0 + 12_000)


def test_a_tenure_lasts_until_the_revocation_that_ended_it_and_the_story_tells_it():
    court = Court()
    first = (court.grant(OWNER, ALICE),)
    story = court.job()
    assert story.claim(ALICE, at=1_000, stamp=1_005, auth=first) is Verdict.OK
    court.job(word="another")
    assert court.revoke(first[0], OWNER, at=4_000) is Verdict.OK
    revoked_at = len(court.ledger.log)
    (tenure,) = explained(story, at=5_000).tenures
    assert (tenure.since_ms - T0, tenure.until_ms - T0, tenure.how) == (1_005, 4_000, "revoked")
    told = tell(told_history(story))
    assert [line.op for line in told] == ["job.schedule", "job.claim", "ucan.revoke"]
    assert told[-1].seq == revoked_at
    assert told[-1].words.endswith(f"the lease of {short_node(ALICE.did)} ended")
    # Given the right again it claims again: that is another tenure.
    again = (court.grant(OWNER, ALICE, nonce=b"another nonce"),)
    assert story.claim(ALICE, at=6_000, auth=again) is Verdict.OK
    assert story.claim(ALICE, at=7_000, auth=again, fence=story.fence) is Verdict.OK
    told = explained(story, at=8_000)
    assert [(one.until_ms or T0) - T0 for one in told.tenures] == [4_000, 0]
    assert [one.how for one in told.tenures] == ["revoked", ""]


def test_a_revocation_of_something_else_is_no_part_of_a_jobs_story():
    court = Court()
    mine, other = court.grant(OWNER, ALICE), court.grant(OWNER, BOB)
    story = court.job()
    assert court.revoke(other, OWNER) is Verdict.OK
    assert story.claim(ALICE, auth=(mine,)) is Verdict.OK
    assert court.revoke(court.grant(OWNER, BOB, nonce=b"another nonce"), OWNER) is Verdict.OK
    complete = story.complete(ALICE, auth=(mine,))
    assert complete is Verdict.OK
    assert court.revoke(mine, OWNER) is Verdict.OK
    assert {line.op for line in tell(told_history(story))} == {
        "job.schedule", "job.claim", "job.complete",
    }  # fmt: skip
    assert [one.how for one in explained(story).tenures] == ["succeeded"]


@pytest.mark.parametrize("how", ["quarantined", "lost its permissions"])
def test_a_tenure_also_ends_with_a_quarantine_and_with_another_owner(how):
    court = Court()
    chain = (court.grant(OWNER, ALICE),)
    story = court.job()
    assert story.claim(ALICE, at=1_000, auth=chain) is Verdict.OK
    if how == "quarantined":
        assert show(court.ledger, two_faces(court.ledger), at=2_000) is Verdict.OK
    else:
        body = RecoverBody(owner=BOB.did, recovery=CAROL.did)
        assert court.ledger.put(MeshRecover, body, RECOVERY, at=2_000) is Verdict.OK
    (tenure,) = explained(story, at=5_000).tenures
    assert (tenure.until_ms - T0, tenure.how) == (2_000, how)
