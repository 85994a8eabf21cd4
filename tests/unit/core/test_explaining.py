"""Everyone can say why a worker got a job, and what a pending one waits for."""

from hashlib import sha256

import pytest

from antiphon.core import lanes
from antiphon.core.explaining import Because, Explanation, Waits, explain
from antiphon.core.records import open_record
from antiphon.core.selection import Candidate
from tests.unit.core.authors import ALICE, BOB, CAROL, OWNER, Author
from tests.unit.core.ledger import T0, Ledger, Story
from tests.unit.core.test_authority import RENDER, Court

DRAWN = {"selection": (("render", "rendezvous"),)}


def worker(who: Author, **fields) -> Candidate:
    return Candidate(did=who.did, **{"kinds": ("render",), **fields})


def explained(story: Story, *known: Candidate, at: int = 1_000) -> Explanation:
    ledger = story.ledger
    control = ledger.history.current
    job = lanes.effective(control, story.job, len(ledger.log) + 1)
    history = [
        (
            open_record(ledger.mesh, record.seq, record.commit_ms, record.subject, record.payload),
            verdict,
        )
        for record, verdict in zip(ledger.log, ledger.verdicts, strict=True)
        if record.subject.endswith(story.id)
    ]
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
        data = told.job.encode() + bytes.fromhex(told.seed) + lot.node.encode()
        assert lot.draw == sha256(data).hexdigest()
    assert [lot.draw for lot in told.lots] == sorted(lot.draw for lot in told.lots)
    assert (told.selection, told.because, told.prefix) == ("rendezvous", Because.RULE, "render")
    assert told.waits_for[0].what is Waits.CLAIM


def test_whoever_is_no_candidate_stands_last_with_the_reason():
    told = explained(
        drawn(requires=("gpu",)),
        worker(ALICE, labels=("gpu=a100",)),
        worker(BOB),
        worker(CAROL, labels=("gpu",), free=0),
        worker(OWNER, kinds=("build",)),
    )
    assert told.because is Because.REQUIRES
    assert [(lot.node, lot.rank) for lot in told.lots if not lot.unfit] == [(ALICE.did, 0)]
    unfit = {lot.node: lot.unfit for lot in told.lots if lot.unfit}
    assert unfit == {BOB.did: "labels", CAROL.did: "busy", OWNER.did: "other_kinds"}


def test_under_queue_selection_nothing_is_drawn():
    story = Story()
    story.schedule()
    told = explained(story, worker(ALICE))
    assert (told.selection, told.because) == ("queue", Because.DEFAULT)
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
        ({"not_before": T0 + 60_000}, (worker(ALICE),), Waits.OFFER),
    ],
)
def test_it_names_what_a_pending_job_waits_for(fields, known, what):
    assert [wait.what for wait in explained(drawn(**fields), *known).waits_for] == [what]


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
