"""Replicas of a job and the quorum that resolves it (spec §9)."""

import pytest
from msgspec.structs import replace

from antiphon.core.families.jobs.derivation import Cron, Tick
from antiphon.core.families.jobs.ops import JobSchedule, Replica, ScheduleBody
from antiphon.core.families.jobs.planned import PlanBody, derived_body
from antiphon.core.families.jobs.replicas import compared, most_children
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.manifest import author, job_id, with_nonce
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger, Reader, Story, manifest
from tests.core.quorums import FALSE, TRUE, Replicated, said

OK = Verdict.OK


def test_a_job_with_replicas_is_not_run_itself():
    parent = Replicated(Ledger())
    assert parent.state == "waiting"
    assert parent.offer(OWNER) is Verdict.BY_QUORUM
    assert parent.claim(ALICE) is Verdict.WAITING
    assert parent.cancel(OWNER) is OK


@pytest.mark.parametrize(
    "fields",
    [
        {"replicas": 3},
        {"quorum": 2},
        {"replicas": 2, "quorum": 3},
    ],
)
def test_a_quorum_is_at_most_as_large_as_the_number_of_replicas(fields):
    assert Story(Ledger()).schedule(**fields) is Verdict.REPLICAS


def test_a_job_with_replicas_leaves_room_for_what_a_replica_adds():
    """Else its replicas could not be written, again and again."""
    large = author({"command": ["true"], "args": ["x" * 4_096] * 63, "timeout": 1})
    story = Story(Ledger())
    story.manifest, story.id = large, job_id(large)
    assert story.schedule(replicas=3, quorum=2) is Verdict.REPLICAS
    assert story.schedule() is OK


def test_only_the_coordinator_submits_replicas():
    parent = Replicated(Ledger())
    assert parent.derive(0, ALICE) is Verdict.NOT_COORDINATOR
    assert parent.derive(0) is OK
    assert parent.derive(0) is Verdict.EXISTS
    child = parent.child(0)
    assert child.state == "pending"
    assert (child.job.replica_of, child.job.scheduler) == (parent.id, OWNER.did)


def test_a_replica_is_what_the_parents_schedule_says():
    parent = Replicated(Ledger())
    ledger = parent.ledger
    other = Replicated(ledger, word="other")
    assert parent.derive(0, deps=()) is Verdict.REPLICA
    assert parent.derive(0, deps=(other.named,)) is Verdict.REPLICA
    assert parent.derive(0, deps=(parent.named, other.named)) is Verdict.REPLICA
    body = parent.child(0).body
    for wrong in (
        replace(body, priority="high"),
        replace(body, replica=Replica(of=parent.id, index=1)),
        replace(body, replica=Replica(of=other.id, index=0)),
        replace(body, manifest=with_nonce(body.manifest, "0" * 32, "replica")),
        parent.child(most_children(3)).body,
    ):
        verdict = ledger.put(JobSchedule, wrong, OWNER, deps=(parent.named,))
        assert verdict is Verdict.REPLICA
    assert parent.derive(most_children(3) - 1) is OK


def test_children_that_agree_resolve_their_parent():
    parent = Replicated(Ledger())
    one, liar, two = parent.done(0), parent.done(1, BOB, FALSE), parent.done(2, CAROL)
    assert parent.resolve(one, two, by=ALICE) is Verdict.NOT_COORDINATOR
    assert parent.resolve(one) is Verdict.QUORUM, "one is not enough"
    assert parent.resolve(one, one) is Verdict.QUORUM, "each counts once"
    assert parent.resolve(one, liar) is Verdict.QUORUM, "they do not agree"
    assert parent.resolve(one, two, outputs=(FALSE,)) is Verdict.QUORUM, "not what they say"
    assert parent.resolve(one, two, deps=(parent.named,)) is Verdict.QUORUM
    ends = ((one.id, one.job.ended_seq), (two.id, 1))
    assert parent.resolve(ends=ends) is Verdict.QUORUM, "it did not end there"
    assert parent.resolve(one, two) is OK
    assert parent.state == "succeeded"
    assert parent.resolve(one, two) is Verdict.FINISHED


def test_every_reader_of_the_log_agrees_on_a_resolve():
    parent = Replicated(Ledger())
    children = parent.done(0), parent.done(1, CAROL)
    assert parent.resolve(*children) is OK
    again = Reader(parent.ledger.mesh, parent.ledger.log)
    assert [again.judge(record) for record in parent.ledger.log] == parent.ledger.verdicts


def test_jobs_that_are_not_its_replicas_do_not_count():
    ledger = Ledger()
    parent, other = Replicated(ledger), Replicated(ledger, word="other")
    child, foreign = parent.done(0), other.done(0, BOB)
    plain = Story(ledger, word="plain")
    assert plain.schedule() is OK
    assert plain.claim(BOB, begin=True) is OK
    assert plain.complete(BOB, outputs=(TRUE,)) is OK
    assert parent.resolve(child, foreign) is Verdict.QUORUM
    assert parent.resolve(child, plain) is Verdict.QUORUM
    failed = parent.done(1, BOB, status="failed")
    assert parent.resolve(child, failed) is Verdict.QUORUM


def test_a_job_without_replicas_is_not_resolved():
    ledger = Ledger()
    parent = Replicated(ledger)
    children = parent.done(0), parent.done(1, BOB)
    for fields in ({}, {"concurrency": "gpu"}):
        plain = Story(ledger, word=f"plain {fields}")
        assert plain.schedule(**fields) is OK
        parent.id = plain.id
        assert parent.resolve(*children) is Verdict.QUORUM


def test_one_worker_that_ran_two_is_no_quorum():
    parent = Replicated(Ledger())
    one, two = parent.done(0, ALICE), parent.done(1, ALICE)
    assert parent.resolve(one, two) is Verdict.QUORUM
    assert parent.resolve(one, parent.done(2, BOB)) is OK


def test_workers_under_one_first_delegation_are_one_party():
    court = Court()
    alice, bob = court.grant(OWNER, ALICE), court.grant(OWNER, BOB)
    carol = court.grant(ALICE, CAROL)
    parent = Replicated(court.ledger, replicas=4)
    one = parent.done(0, ALICE, auth=(alice,))
    colluding = parent.done(1, CAROL, auth=(alice, carol))
    again = court.grant(OWNER, ALICE, nonce=b"another nonce")
    renewed = parent.done(2, ALICE, auth=(again,))
    assert parent.resolve(one, colluding) is Verdict.QUORUM
    assert parent.resolve(one, renewed) is Verdict.QUORUM, "another delegation to the same key"
    independent = parent.done(3, BOB, auth=(bob,))
    assert parent.resolve(colluding, independent) is OK


def test_the_owner_counts_as_one_party():
    court = Court()
    alice = court.grant(OWNER, ALICE)
    parent = Replicated(court.ledger)
    own, second = parent.done(0, OWNER), parent.done(1, OWNER)
    assert parent.resolve(own, second) is Verdict.QUORUM
    assert parent.resolve(own, parent.done(2, ALICE, auth=(alice,))) is OK


def test_replicas_need_a_submitter_who_may_still_submit():
    court = Court()
    chain = (court.grant(OWNER, ALICE, cmd="/job/schedule"),)
    parent = Replicated(court.ledger, by=ALICE, how={"auth": chain})
    assert parent.derive(0) is OK
    assert court.revoke(chain[0], OWNER) is OK
    assert parent.derive(1) is Verdict.REVOKED
    assert parent.derive(0) is Verdict.EXISTS


def test_a_schedule_that_did_not_take_effect_is_no_parent():
    ledger = Ledger()
    plain = Story(ledger, word="twice")
    assert plain.schedule(concurrency="gpu") is OK
    body = ScheduleBody(kind=plain.kind, manifest=plain.manifest, replicas=2, quorum=2)
    assert ledger.put(JobSchedule, body, OWNER) is Verdict.EXISTS
    parent = Replicated.__new__(Replicated)
    Story.__init__(parent, ledger, word="twice")
    parent.body, parent.named = body, ledger.dep(len(ledger.log))
    children = parent.done(0), parent.done(1, BOB)
    assert parent.resolve(*children) is Verdict.QUORUM


def test_what_is_compared_is_the_result_or_the_files():
    noise = said("12:01 done", "stderr")
    a, b = said("a", "a.txt"), said("b", "b.txt")
    assert compared((TRUE, noise, a)) == (TRUE,)
    assert compared((a, noise, b)) == (a, b)
    assert compared(()) == ()


def planned(court):
    """A job with replicas that follows from Alice's plan, by the coordinator Carol."""
    ledger, tick = court.ledger, Tick(tick_ms=T0 + 4_000)
    assert ledger.coordinator(CAROL) is OK
    chain = (court.grant(OWNER, ALICE, cmd="/job/schedule"),)
    cron = Cron(at="0 3 * * *", zone="Europe/Berlin")
    plan = PlanBody(
        kind="render", name="nightly", manifest=manifest(), trigger=cron, replicas=2, quorum=2
    )
    assert ledger.put(PlanPut, plan, ALICE, auth=chain) is OK
    named = ledger.dep(len(ledger.log))
    parent = Replicated.__new__(Replicated)
    Story.__init__(parent, ledger)
    parent.body = derived_body(plan, named[1], tick)
    parent.manifest, parent.id = parent.body.manifest, job_id(parent.body.manifest)
    assert ledger.put(JobSchedule, parent.body, CAROL, deps=(named,), at=5_000) is OK
    parent.named = ledger.dep(len(ledger.log))
    return parent, (parent.named, named), chain[0]


def test_replicas_of_what_follows_from_a_plan_are_its_authors():
    court = Court()
    parent, deps, cid = planned(court)
    assert parent.derive(0, CAROL, deps=deps[:1]) is Verdict.REPLICA, "it names its plan, too"
    assert parent.derive(0, CAROL, deps=deps) is OK
    assert parent.child(0).job.scheduler == ALICE.did
    assert parent.child(0).job.derived is None
    assert court.ledger.coordinator(BOB) is OK
    assert parent.derive(1, BOB, deps=deps) is OK, "another coordinator goes on"
    assert court.revoke(cid, OWNER) is OK
    assert parent.derive(2, BOB, deps=deps) is Verdict.REVOKED


def test_a_schedule_that_does_not_follow_from_its_plan_has_no_replicas():
    court = Court()
    parent, deps, _ = planned(court)
    parent.body = replace(parent.body, manifest=with_nonce(parent.manifest, "0" * 32, "replica"))
    body = parent.body
    assert court.ledger.put(JobSchedule, body, CAROL, deps=deps[1:]) is Verdict.DERIVED
    parent.named = court.ledger.dep(len(court.ledger.log))
    assert parent.derive(0, CAROL, deps=(parent.named, deps[1])) is Verdict.REPLICA
