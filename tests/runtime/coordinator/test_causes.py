"""Work that follows from other work waits until its cause is on the log (M18)."""

import pytest

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    JobClaim,
    JobComplete,
    JobOffer,
    JobSchedule,
    OfferBody,
    ScheduleBody,
)
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.session import dep_of
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records
from tests.runtime.by_hand import called, finished
from tests.runtime.coordinator.test_coordinator import coordinated, ended, result_of, state, submit
from tests.runtime.meshes import CALM, KIND, a_mesh, eventually, on_both_engines

TOOL, SYNTHESIS = "cortex.tool.search", "cortex.synthesize.window"


@on_both_engines
@pytest.mark.req("M18")
async def test_a_synthesis_waits_for_the_completion_of_a_tool_of_another_kind(engine):
    """Nobody gets it before: not by an offer, not by a claim, not by a worker that is ready."""
    async with coordinated(engine) as (mesh, session, node):
        ran = []

        async def synthesize(found: list[str]) -> int:
            ran.append(found)
            return len(found)

        async def search(word: str) -> list[str]:
            return [word, word.upper()]

        await mesh.worker(synthesize, kind=SYNTHESIS)
        tool = await submit(session, TOOL, "seed")
        synthesis = await submit(session, SYNTHESIS, None, reads=[result_of(tool)])
        rash = (await mesh.connection()).session
        lane = (await rash.read_lane(SYNTHESIS, synthesis.id)).lane
        offer = OfferBody(kind=SYNTHESIS, job=synthesis.id)
        claim = ClaimBody(kind=SYNTHESIS, job=synthesis.id, lease_ms=CALM.lease_ms, begin=True)
        early = [
            await rash.commit(rash.draft(JobOffer, offer, prev=lane.call_tail)),
            await rash.commit(rash.draft(JobClaim, claim, prev=lane.job_tail)),
        ]
        await node.reached(early[-1])
        verdicts = [node.replica.record(seq).verdict for seq in early]
        assert not any(verdict.is_accepted for verdict in verdicts), verdicts
        assert state(node, synthesis) == "waiting"
        assert ran == []

        await mesh.worker(search, kind=TOOL)
        assert await ended(node, tool, synthesis) == ["succeeded", "succeeded"]
        assert ran == [["seed", "SEED"]]
        places = {
            type(op): (job.kind, stored.record.seq)
            for job in (tool, synthesis)
            for stored in job_records(node.replica, job.kind, job.id)
            if stored.verdict is Verdict.OK
            for op in [node.session.open(stored.record).op]
            if (type(op), job.kind) in {(JobComplete, TOOL), (JobOffer, SYNTHESIS)}
        }
        assert places[JobComplete][1] < places[JobOffer][1], "first the cause, then the offer"


@on_both_engines
@pytest.mark.req("M18")
async def test_an_op_that_names_a_completion_counts_once_that_is_on_the_log_not_before(
    engine,
):
    """Within a kind an op names its causes itself; whoever reads late finds the same verdicts."""
    async with a_mesh(engine) as mesh:
        node = await mesh.node(caretaking=False)
        caller, worker = (await mesh.connection()).session, (await mesh.connection()).session
        cause = await called(caller, KIND)

        async def follow(word: str, *deps) -> int:
            content = manifest.author({"command": ["true", word], "timeout": 1})
            body = ScheduleBody(kind=KIND, manifest=content)
            return await caller.commit(caller.draft(JobSchedule, body, prev=0, deps=deps))

        guessed = await follow("early", (cause.seq + 2, digest(b"a completion to come")))
        done = await finished(worker, KIND, cause)
        (record,) = await caller.log.fetch_many([done])
        named = (done, dep_of(caller.protocol, record).op_id)
        right = await follow("in time", named)
        wrong = await follow("of another id", (done, digest(b"")))
        late = await mesh.node(caretaking=False)
        for reader in (node, late):
            await reader.reached(wrong)
            told = [reader.replica.record(seq).verdict for seq in (guessed, right, wrong)]
            assert told == [Verdict.MISSING_DEP, Verdict.OK, Verdict.MISSING_DEP]
            pending = reader.replica.ask(ReplicaJobs).jobs(limit=9)
            assert sorted(job.state.value for job in pending) == ["pending", "succeeded"]
        await eventually(lambda: node.applied == late.applied)
