"""No job can stop the coordinator: what cannot be offered ends or rests, and others begin."""

import pytest

from antiphon.core.clock import hlc
from antiphon.core.derivations import offer_derivation
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    Failure,
    JobClaim,
    JobComplete,
    JobOffer,
)
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.coordinator import coordinator
from antiphon.runtime.coordinator.predecessors import Predecessors
from antiphon.runtime.log.writer import Written
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from tests.runtime.by_hand import called, finished, proved
from tests.runtime.coordinator.test_coordinator import cancelled_because, coordinated, state
from tests.runtime.coordinator.test_whose_results import given_back
from tests.runtime.meshes import call, eventually, on_both_engines

in_virtual_time = pytest.mark.virtual_time
KIND, OTHER = "fan.parent", "build.image"


async def failed(session, kind, message):
    """A job that failed with this message."""
    job = await called(session, kind)
    view = await session.read_lane(kind, job.id, at_least=job.seq)
    manifest = view.opened_at(job.seq).op.body.manifest
    claim = ClaimBody(kind=kind, job=job.id, lease_ms=session.control.rules.lease_ms, begin=True)
    draft = session.draft(JobClaim, claim, prev=0)
    seq = await session.commit(draft)
    body = CompleteBody(
        kind=kind,
        job=job.id,
        fence=hlc.pack(draft.op.hlc),
        status="failed",
        error=Failure(name="ValueError", message=message),
        exit=1,
    )
    await session.commit(session.draft(JobComplete, proved(session, body, manifest), prev=seq))
    return job


async def after_another(session, node, name="honest"):
    """A job behind one that has ended."""
    first = await called(session, OTHER)
    await finished(session, OTHER, first)
    job = await call(session, name, kind=OTHER, after=((OTHER, first.id),))
    await node.reached(job.seq)
    return job


@on_both_engines
async def test_a_job_goes_on_after_many_children_that_failed_with_long_messages(engine):
    async with coordinated(engine) as (_, session, node):
        children = [await failed(session, "fan.child", "e" * 4_000) for _ in range(80)]
        job = await called(session, KIND)
        keys = [("fan.child", one.id) for one in children]
        seq = await given_back(session, job, *keys, kind=KIND)
        await node.reached(seq)
        await eventually(lambda: state(node, job_of(node, KIND, job)) == "pending")
        results = node.replica.ask(ReplicaJobs).job(KIND, job.id).child_results
        assert [one.outcome for one in results] == ["failed"] * 80
        assert all(one.error.message.startswith("eee") for one in results)


def job_of(node, kind, submitted):
    return node.replica.ask(ReplicaJobs).job(kind, submitted.id)


@in_virtual_time
async def test_an_offer_that_no_record_holds_ends_its_job_with_the_reason(monkeypatch):
    monkeypatch.setattr(offer_derivation, "ERROR_EACH", 1 << 20)
    monkeypatch.setattr(offer_derivation, "ERRORS_TOTAL", 1 << 30)
    async with coordinated("memory") as (_, session, node):
        children = [await failed(session, "fan.child", "e" * 4_000) for _ in range(80)]
        job = await called(session, KIND)
        await given_back(session, job, *(("fan.child", one.id) for one in children), kind=KIND)
        await eventually(lambda: state(node, job_of(node, KIND, job)) == "aborted")
        why = cancelled_because(node, job_of(node, KIND, job))
        assert why.startswith("predecessor: it cannot be offered: job.offer has ")
        assert state(node, await offered(session, node)) == "pending"


async def offered(session, node, name="honest"):
    job = await after_another(session, node, name)
    await eventually(lambda: state(node, job) == "pending")
    return job


@in_virtual_time
async def test_jobs_that_cannot_be_derived_rest_and_others_are_offered(monkeypatch):
    poison, really = set(), Predecessors.derive_in_turns

    async def derive(self, job):
        if job.id in poison:
            raise RuntimeError("no such luck")
        return await really(self, job)

    monkeypatch.setattr(Predecessors, "derive_in_turns", derive)
    monkeypatch.setattr(coordinator, "JOBS_PER_ROUND", 4)
    monkeypatch.setattr(coordinator, "TRIED_AGAIN", 1)
    async with coordinated("memory") as (_, session, node):
        first = await called(session, OTHER)
        bad = []
        for at in range(8):
            bad.append(await call(session, at, kind=OTHER, after=((OTHER, first.id),)))
        poison.update(one.id for one in bad)
        await node.reached(bad[-1].seq)
        await finished(session, OTHER, first)
        await offered(session, node)
        told = node.replica.attention.newest(limit=100)
        assert {one.item for one in told} == {f"{OTHER} {one.id}" for one in bad}
        assert {one.service for one in told} == {"offers"}
        assert "RuntimeError: no such luck" in told[0].reason
        assert {one.whose for one in told} == {session.author.did}
        poison.clear()
        await eventually(lambda: all(state(node, one) == "pending" for one in bad))
        assert node.replica.attention.newest(limit=100) == []


@in_virtual_time
async def test_a_job_does_not_end_because_its_coordinator_lacks_a_right_for_a_while(monkeypatch):
    refused, really = [], FullNode.write_all

    async def write_all(self, intents):
        if refused and intents[0].op is JobOffer:
            refused.clear()
            return [Written(one, 7, verdict=Verdict.CHAIN_EXPIRED) for one in intents]
        return await really(self, intents)

    monkeypatch.setattr(FullNode, "write_all", write_all)
    async with coordinated("memory") as (_, session, node):
        first = await called(session, OTHER)
        job = await call(session, "next", kind=OTHER, after=((OTHER, first.id),))
        await node.reached(job.seq)
        refused.append(True)
        await finished(session, OTHER, first)
        told = await eventually(lambda: node.replica.attention.newest(limit=10))
        assert [(one.whose, one.item) for one in told] == [(node.did, f"{OTHER} {job.id}")]
        assert "the coordinator may not write it" in told[0].reason
        await eventually(lambda: state(node, job) == "pending")
        assert node.replica.attention.newest(limit=10) == []
