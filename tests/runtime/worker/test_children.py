"""A handler asks for jobs and continues with their results; meanwhile no worker holds its job."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon import After, JobContext, Mesh
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.ops import Retry
from antiphon.core.families.jobs.state import State
from antiphon.core.protocol import PROTOCOL
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.worker.runs import run_work
from antiphon.sdk.many.bound_calls import Call
from tests.patience import PATIENCE_S
from tests.runtime.meshes import (
    CALM,
    KEPT,
    a_mesh,
    call,
    eventually,
    on_both_engines,
    on_both_engines_in_real_time,
    ops_on_lane,
)

PARENT, PART = "test.parent", "test.part"

plain = Mesh.open(engine="memory")


@plain.task(PART)
async def part(number: int) -> str:
    """Only to make calls and to read results: the tests run functions of their own."""
    return str(number)


def calls(count: int, **options) -> list[Call[str]]:
    return [part.options(**options).bind(number) for number in range(count)]


async def parent(count: int, ctx: JobContext) -> list[str]:
    found = ctx.results(part)
    if found is None:
        raise After(calls(count))
    return found


async def coordinated(mesh):
    owner = await mesh.connection(mesh.owner)
    return owner.session, await mesh.node(connection=owner)


async def result(session, submitted):
    async with asyncio.timeout(PATIENCE_S):
        return await submission.wait_for_end(session, submitted.kind, submitted.id)


def children(node):
    return [job for job in node.replica.ask(ReplicaJobs).jobs(limit=1_000) if job.kind == PART]


@on_both_engines
async def test_a_job_waits_for_its_children_and_continues_elsewhere_with_their_results(engine):
    async with a_mesh(engine) as mesh:
        session, node = await coordinated(mesh)
        worked, sizes = [], [3, 70_000, 30_000]

        async def work(number: int) -> str:
            worked.append(number)
            return "x" * sizes[number]

        first = await mesh.worker(parent, kind=PARENT, drain_s=0)
        job = await call(session, 3, kind=PARENT)
        await eventually(
            lambda: node.replica.ask(ReplicaJobs).job(PARENT, job.id).state is State.WAITING
        )
        await eventually(lambda: first.busy == 0)
        assert node.replica.ask(ReplicaJobs).job(PARENT, job.id).claimer == ""
        first.drain()
        await mesh.worker(work, kind=PART)
        await mesh.worker(parent, kind=PARENT)
        ended = await result(session, job)
        assert ended.job.state is State.SUCCEEDED
        assert (ended.job.continuations, ended.job.attempts) == (1, 0)
        assert sorted(worked) == [0, 1, 2]
        kinds = [op for op, _ in ops_on_lane(node, job.id, PARENT)]
        assert kinds == [
            *("job.schedule", "job.claim", "job.yield"),
            *("job.offer", "job.claim", "job.complete"),
        ]


@on_both_engines_in_real_time
async def test_a_worker_killed_between_submitting_and_giving_back_runs_no_child_twice(
    engine, monkeypatch
):
    async with a_mesh(engine, KEPT) as mesh:
        session, node = await coordinated(mesh)
        worked, begun = [], []
        connection = await mesh.connection()
        submit_many, is_dead = run_work.submit_many, asyncio.Event()

        async def submit_and_die(session, bodies):
            found = await submit_many(session, bodies)
            if session is connection.session:
                is_dead.set()
                await asyncio.Event().wait()
            return found

        async def counted(count: int, ctx: JobContext) -> list[str]:
            begun.append(ctx.attempt)
            return await parent(count, ctx)

        async def work(number: int) -> str:
            worked.append(number)
            return str(number)

        monkeypatch.setattr(run_work, "submit_many", submit_and_die)
        doomed = await mesh.worker(counted, kind=PARENT, connection=connection, drain_s=0)
        job = await call(session, 5, kind=PARENT)
        async with asyncio.timeout(PATIENCE_S):
            await is_dead.wait()
        doomed._leases.close()  # a dead process renews nothing
        await mesh.worker(work, kind=PART)
        await mesh.worker(counted, kind=PARENT)
        ended = await result(session, job)
        assert ended.job.state is State.SUCCEEDED
        assert begun[:2] == [1, 2]
        assert len(children(node)) == 5
        assert sorted(worked) == [0, 1, 2, 3, 4]


@on_both_engines
async def test_children_of_a_second_wait_are_other_jobs_and_earlier_ones_can_be_named_again(engine):
    async with a_mesh(engine) as mesh:
        session, node = await coordinated(mesh)
        seen = []

        async def twice(count: int, ctx: JobContext) -> int:
            seen.append((ctx.continuations, len(ctx.children)))
            if ctx.continuations == 0:
                raise After(calls(count))
            if ctx.continuations == 1:
                raise After([*ctx.children, *calls(count)])
            return len(ctx.results(part) or [])

        async def work(number: int) -> str:
            return str(number)

        await mesh.worker(twice, kind=PARENT)
        await mesh.worker(work, kind=PART)
        job = await call(session, 2, kind=PARENT)
        ended = await result(session, job)
        assert seen == [(0, 0), (1, 2), (2, 4)]
        assert len(children(node)) == 4
        assert ended.outputs[0].text == "4"


@on_both_engines
async def test_a_child_that_failed_is_shown_and_its_result_is_an_error(engine):
    async with a_mesh(engine) as mesh:
        session, _ = await coordinated(mesh)

        async def lenient(ctx: JobContext) -> list[str]:
            if not ctx.continuations:
                raise After(calls(2, attempts=1))
            return [
                f"{one.outcome} {one.error.message if one.error else ''}" for one in ctx.children
            ]

        async def work(number: int) -> str:
            if number:
                raise ValueError("one is too many")
            return "fine"

        async def strict(count: int, ctx: JobContext) -> list[str]:
            if ctx.results(part) is None:
                raise After(calls(count, attempts=1))
            raise AssertionError("unreachable")

        await mesh.worker(work, kind=PART)
        await mesh.worker(lenient, kind=PARENT)
        await mesh.worker(strict, kind="test.strict")
        ended = await result(session, await call(session, kind=PARENT))
        assert ended.outputs[0].text == '["succeeded ","failed one is too many"]'
        ended = await result(session, await call(session, 2, kind="test.strict"))
        assert ended.job.outcome == "failed"
        assert ended.job.attempts == 0, "another attempt would find the same"
        assert "child 2, test.part" in ended.error.message
        assert "ValueError: one is too many" in ended.error.message


@on_both_engines
async def test_a_handler_that_could_not_tell_its_calls_apart_fails_at_once(engine):
    async with a_mesh(engine, CALM) as mesh:
        session, node = await coordinated(mesh)

        async def blind(count: int) -> None:
            raise After(calls(count))

        async def greedy(ctx: JobContext) -> None:
            raise After(calls(1_025))

        await mesh.worker(blind, kind=PARENT)
        await mesh.worker(greedy, kind="test.greedy")
        ended = await result(session, await call(session, 1, kind=PARENT))
        assert "takes no ctx" in ended.error.message
        ended = await result(session, await call(session, kind="test.greedy"))
        assert "can wait for 1,024 jobs" in ended.error.message
        assert children(node) == []


async def grant(owner, to: str, can: tuple[str, ...]) -> None:
    terms, did = Terms(can=can, kinds=("test.*",)), owner.author.did
    for payload in PROTOCOL.rights.payloads(
        terms, issuer=did, audience=to, owner=did, nonce=owner.entropy.token
    ):
        granted = owner.author._keyring.delegate(payload)
        await write_one(owner, Intent(UcanDelegate, DelegateBody(token=token_of(granted.raw))))


@pytest.mark.parametrize("can", [("claim",), ("claim", "schedule")])
@on_both_engines
async def test_a_worker_submits_children_under_its_own_permissions(engine, can):
    async with a_mesh(engine, replace(CALM, authority="chain")) as mesh:
        session, node = await coordinated(mesh)

        async def work(number: int) -> str:
            return str(number)

        for function, kind in ((parent, PARENT), (work, PART)):
            connection = await mesh.connection()
            await grant(session, connection.session.author.did, can)
            await mesh.worker(function, kind=kind, connection=connection)
        job = await call(session, 2, kind=PARENT, retry=Retry(attempts=1))
        ended = await result(session, job)
        if "schedule" in can:
            assert ended.job.outcome == "succeeded"
            return
        assert ended.job.outcome == "failed"
        assert "this worker could not submit" in ended.error.message
        assert children(node) == []


def test_after_says_what_it_takes():
    with pytest.raises(ValueError, match="at least one"):
        After([])
    with pytest.raises(TypeError, match=r"task.bind\(...\) or handles"):
        After(["x"])
    with pytest.raises(TypeError, match=r"task.bind\(...\) or handles"):
        After([part])
