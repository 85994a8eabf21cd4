"""The coordinator offers what waits for other jobs or for room, and cancels what cannot begin."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon import assembly
from antiphon.core import manifest
from antiphon.core.authority.rules import Limit
from antiphon.core.families.jobs.ops import JobOffer, OfferBody, Result, Retry, ScheduleBody
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.caller import submission
from antiphon.runtime.coordinator.offer_audit import OfferAudit
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records
from tests.runtime.meshes import CALM, a_mesh, call, eventually, on_both_engines

BUILD, TEST = "ci.build", "ci.test"
LIMITED = msgspec.structs.replace(CALM, limits=(Limit(label="gpu", kinds=("ci",), at_once=2),))


def result_of(job, name="/args/0", **more):
    return {"kind": "result", "of": [job.kind, job.id], "name": name, **more}


async def submit(session, kind, *args, reads=(), **fields):
    """A call of a handler that reads results of other jobs."""
    content = {"command": [f"@{kind}"], "args": [call_text(args, {})], "timeout": 30}
    if reads:
        content["inputs"] = list(reads)
    body = ScheduleBody(kind=kind, manifest=manifest.author(content), **fields)
    await submission.submit(session, body)
    return (await session.read_lane(kind, manifest.job_id(body.manifest))).lane.job


@asynccontextmanager
async def coordinated(engine, rules=CALM):
    """A mesh whose owner is connected and runs the coordinator."""
    async with a_mesh(engine, rules) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner)
        yield mesh, owner.session, node


def state(node, job):
    return node.replica.ask(ReplicaJobs).job(job.kind, job.id).state.value


async def ended(node, *jobs):
    await eventually(
        lambda: all(node.replica.ask(ReplicaJobs).job(one.kind, one.id).is_terminal for one in jobs)
    )
    return [state(node, one) for one in jobs]


def cancelled_because(node, job):
    ops = [node.session.open(one.record).op for one in job_records(node.replica, job.kind, job.id)]
    return ops[-1].body.reason


@on_both_engines
async def test_a_job_begins_after_another_and_gets_its_result(engine):
    async with coordinated(engine) as (mesh, session, node):
        ran = []

        async def build(name: str) -> list[str]:
            ran.append("build")
            return [name, "built"]

        async def test(built: list[str], extra: int) -> str:
            ran.append("test")
            return f"{' '.join(built)} {extra}"

        await mesh.worker(test, kind=TEST)
        first = await submit(session, BUILD, "app")
        second = await submit(session, TEST, None, 7, reads=[result_of(first)])
        await node.reached(second.scheduled_seq)
        assert state(node, second) == "waiting"
        await mesh.worker(build, kind=BUILD)
        assert await ended(node, first, second) == ["succeeded", "succeeded"]
        assert ran == ["build", "test"]
        lane = await session.read_lane(TEST, second.id)
        completion = lane.history[-1].opened.op.body
        assert completion.outputs[0].text == '"app built 7"'


@on_both_engines
async def test_a_large_result_is_fetched_and_many_small_ones_fill_a_list(engine):
    async with coordinated(engine) as (mesh, session, node):

        async def build(size: int) -> str:
            return "x" * size

        async def total(parts: list[str]) -> int:
            return sum(map(len, parts))

        sizes = [10, 20_000, 50_000, 60_000, 200_000]
        await mesh.worker(build, kind=BUILD)
        await mesh.worker(total, kind=TEST)
        parts = [await submit(session, BUILD, size) for size in sizes]
        reads = [result_of(job, f"/args/0/{at}") for at, job in enumerate(parts)]
        job = await submit(session, TEST, [None] * len(parts), reads=reads)
        assert await ended(node, job) == ["succeeded"]
        lane = await session.read_lane(TEST, job.id)
        assert lane.history[-1].opened.op.body.outputs[0].text == str(sum(sizes))


@on_both_engines
async def test_what_follows_a_failed_job_is_cancelled_unless_it_takes_any_outcome(engine):
    async with coordinated(engine) as (mesh, session, node):

        async def build(_: int) -> None:
            raise ValueError("broken")

        async def test(_: int) -> str:
            return "ran"

        first = await submit(session, BUILD, 1, retry=Retry(attempts=1))
        after = [(first.kind, first.id)]
        strict = await submit(session, TEST, 1, after=after)
        below = await submit(session, TEST, 2, after=[(TEST, strict.id)])
        anyway = await submit(session, TEST, 3, after=after, after_any_outcome=True)
        reader = await submit(session, TEST, None, reads=[result_of(first)], after_any_outcome=True)
        await mesh.worker(build, kind=BUILD)
        await mesh.worker(test, kind=TEST)
        states = await ended(node, first, strict, below, anyway, reader)
        assert states == ["failed", "aborted", "aborted", "succeeded", "aborted"]
        assert cancelled_because(node, strict) == (
            f"predecessor: ci.build {first.id[:12]} ended as failed"
        )
        assert "was cancelled" in cancelled_because(node, below)


@pytest.mark.req("M19")
@on_both_engines
async def test_a_job_that_names_one_submitted_later_or_never_is_cancelled(engine):
    async with coordinated(engine) as (_, session, node):
        later = manifest.author({"command": ["true"], "timeout": 1})
        job = await submit(session, TEST, 1, after=[(BUILD, manifest.job_id(later))])
        await submission.submit(session, ScheduleBody(kind=BUILD, manifest=later))
        assert await ended(node, job) == ["aborted"]
        assert "was not submitted before it" in cancelled_because(node, job)


@pytest.mark.req("M19")
@on_both_engines
async def test_of_a_loop_nothing_is_ever_offered(engine):
    async with coordinated(engine) as (mesh, session, node):
        ran = []

        async def build(at: int) -> int:
            ran.append(at)
            return at

        await mesh.worker(build, kind=BUILD)
        contents = [
            manifest.author(
                {"command": [f"@{BUILD}"], "args": [call_text((at,), {})], "timeout": 9}
            )
            for at in range(3)
        ]
        keys = [(BUILD, manifest.job_id(one)) for one in contents]
        for at, one in enumerate(contents):  # each waits for the next, the last for the first
            body = ScheduleBody(kind=BUILD, manifest=one, after=(keys[(at + 1) % 3],))
            await submission.submit(session, body)
        jobs = [(await session.read_lane(*key)).lane.job for key in keys]
        assert await ended(node, *jobs) == ["aborted"] * 3
        assert "was not submitted before it" in cancelled_because(node, jobs[0])
        assert ran == []


@on_both_engines
async def test_no_more_jobs_are_offered_under_a_label_than_its_limit_allows(engine):
    async with coordinated(engine, LIMITED) as (mesh, session, node):
        now, most, release = 0, 0, asyncio.Event()

        async def build(_: int) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await release.wait()
            now -= 1

        await mesh.worker(build, kind=BUILD, slots=8)
        jobs = [await submit(session, BUILD, at, concurrency="gpu") for at in range(7)]
        await eventually(lambda: now == 2)
        await asyncio.sleep(0.2)
        assert now == 2
        release.set()
        assert await ended(node, *jobs) == ["succeeded"] * 7
        assert most == 2


async def test_a_kind_under_a_limit_takes_no_job_with_another_label():
    async with a_mesh("memory", LIMITED) as mesh:
        session = (await mesh.connection(mesh.owner)).session
        with pytest.raises(Exception, match="the label of its kind"):
            await call(session, kind=BUILD, concurrency="other")


@on_both_engines
async def test_another_coordinator_goes_on_from_the_log_alone(engine):
    async with a_mesh(engine, LIMITED) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        ran = []

        async def build(at: int) -> int:
            ran.append(at)
            return at

        await mesh.worker(build, kind=BUILD)
        jobs = [await submit(owner, BUILD, 0, concurrency="gpu")]
        for at in range(1, 9):
            after = [(BUILD, jobs[-1].id)]
            jobs.append(await submit(owner, BUILD, at, after=after, concurrency="gpu"))
        for at in range(3):
            connection = await mesh.connection()
            body = CoordinatorBody(node=connection.session.author.did)
            await write_one(owner, Intent(MeshCoordinator, body))
            replica = Replica(":memory:", mesh=mesh.mesh)
            async with assembly.replicating(connection, replica, caretaking=True) as node:
                await ended(node, jobs[at * 3 + 2])
            replica.close()
        assert ran == list(range(9)), "each once, in order"


@pytest.mark.req("M15")
@on_both_engines
async def test_a_full_node_names_an_offer_that_does_not_follow_from_the_log(engine):
    async with a_mesh(engine, LIMITED) as mesh:
        session = (await mesh.connection(mesh.owner)).session  # a coordinator that writes by hand
        node = await mesh.node(caretaking=False)
        audit = OfferAudit(node)
        node.watchers.append(audit.applied)
        first = await submit(session, BUILD, 1, concurrency="gpu")
        second = await submit(session, BUILD, None, reads=[result_of(first)], concurrency="gpu")
        crowd = [await submit(session, BUILD, at, concurrency="gpu") for at in range(5, 8)]

        async def offer(job, *results):
            lane = (await session.read_lane(job.kind, job.id)).lane
            body = OfferBody(kind=job.kind, job=job.id, results=results)
            written = await write_one(session, Intent(JobOffer, body, lane))
            assert written.verdict is Verdict.OK
            await node.reached(written.seq)
            return [one.what for one in audit.differences]

        said = await offer(second, Result(text="1"))
        assert said == ["not every job that it waits for has ended"]
        assert await offer(crowd[0]) == said
        found = await offer(crowd[1])
        assert found[1:] == ["3 jobs are offered under gpu, which allows 2"]
