"""Audited runs: each model call is stored under the fence, and named by the completion."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon.core.families.jobs import ops
from antiphon.core.inference import snapshot
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import check_size
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.inference.recorder import Recorder
from antiphon.runtime.node.artifact_eviction import Evictor
from antiphon.runtime.worker.runs import model_calls
from tests.runtime import spawned
from tests.runtime.inference.exchanges import calls_a_model
from tests.runtime.meshes import (
    CALM,
    KEPT,
    KIND,
    a_mesh,
    call,
    on_both_engines,
    on_both_engines_in_real_time,
)

AUDITED = replace(CALM, audit_inference=True)
ONCE = ops.Retry(attempts=1)
SOON = ops.Retry(base_ms=10)


async def end_of(session, job):
    return await submission.wait_for_end(session, KIND, job.id)


async def records_of(session, job, sort):
    view = await session.read_lane(KIND, job.id)
    found = [(one.opened.op, one.verdict) for one in view.history]
    return [(op.body, said) for op, said in found if isinstance(op, sort)]


async def snapshots_of(session, ended):
    """What the completion names, read back."""
    store, found = Artifacts(session.engine.blobs), []
    for one in ended.outputs:
        if one.type == snapshot.SNAPSHOT_TYPE:
            job = (KIND, ended.job.id)
            raw = await store.read(one.hash, job=job, max_bytes=one.size)
            found.append(snapshot.decode(raw))
    return found


@on_both_engines
async def test_a_completion_names_the_stored_snapshot_of_each_call(engine):
    async def work() -> int:
        calls_a_model("one")
        calls_a_model("two")
        return 2

    async with a_mesh(engine, AUDITED) as mesh:
        worker = await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session))
        assert ended.job.outcome == "succeeded"
        assert ended.outputs[0].text == "2"
        first, second = await snapshots_of(session, ended)
        assert first.prompt.value == [{"role": "user", "content": "one"}]
        assert [one.text for one in second.answers] == ["hi"]
        source = second.source
        assert (source.kind, source.job, source.call) == (KIND, ended.job.id, 1)
        assert (source.fence, source.worker) == (ended.job.fence, worker.session.author.did)
        assert source.fence <= second.started <= second.ended
        ((done, verdict),) = await records_of(session, ended.job, ops.JobComplete)
        assert (done.calls, verdict) == (2, Verdict.OK)
        stored = await records_of(session, ended.job, ops.JobArtifact)
        assert [(body.as_, body.name, body.n) for body, _ in stored] == [
            ("snapshot", "gpt-x", 0),
            ("snapshot", "gpt-x", 1),
        ]


@on_both_engines
async def test_a_job_without_calls_says_so_also_if_it_fails(engine):
    async def work(fails: bool) -> None:
        if fails:
            raise ValueError("no")

    async with a_mesh(engine, AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        for fails, outcome in ((False, "succeeded"), (True, "failed")):
            ended = await end_of(session, await call(session, fails, retry=ONCE))
            ((done, verdict),) = await records_of(session, ended.job, ops.JobComplete)
            assert (done.calls, verdict, ended.job.outcome) == (0, Verdict.OK, outcome)


@on_both_engines
async def test_a_failed_attempt_leaves_its_calls_to_the_next(engine):
    async def work() -> str:
        calls_a_model("again")
        if not seen:
            seen.append(1)
            raise ValueError("not yet")
        return "done"

    seen = []
    async with a_mesh(engine, AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session, retry=SOON))
        found = await snapshots_of(session, ended)
        assert [one.source.call for one in found] == [0, 1]
        assert found[0].source.fence < found[1].source.fence


@on_both_engines
async def test_a_worker_without_the_capture_cannot_end_an_audited_job(engine, monkeypatch):
    async def nothing(self):
        self.recorder.close()
        return model_calls.Account(0, ())

    async def work() -> None:
        calls_a_model()
        await stored.wait()

    stored = asyncio.Event()
    monkeypatch.setattr(model_calls.ModelCalls, "account", nothing)
    async with a_mesh(engine, AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        job = await call(session)
        await until_there(session, job, ops.JobArtifact)
        stored.set()
        await until_there(session, job, ops.JobComplete)
        ((_, verdict),) = await records_of(session, job, ops.JobComplete)
        assert verdict is Verdict.AUDIT


async def until_there(session, job, sort):
    while not await records_of(session, job, sort):
        await asyncio.sleep(0.02)


@on_both_engines
async def test_without_audit_nothing_is_recorded(engine):
    async def work() -> bool:
        return calls_a_model()

    async with a_mesh(engine, CALM) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session))
        assert ended.outputs[0].text == "false"
        ((done, _),) = await records_of(session, ended.job, ops.JobComplete)
        assert done.calls is None


@pytest.mark.virtual_time
async def test_the_policy_redacts_and_the_snapshot_says_what():
    async def work() -> None:
        calls_a_model("my name is Ada")

    rules = replace(AUDITED, redact_inference=("prompt", "context"))
    async with a_mesh("memory", rules) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session))
        (one,) = await snapshots_of(session, ended)
        assert one.redacted == ("prompt", "context")
        assert (one.prompt.value, one.prompt.redacted) == (None, "policy")
        assert one.prompt.size > 0
        assert one.prompt.hash.startswith("blake3:")
        assert [answer.text for answer in one.answers] == ["hi"]


@pytest.mark.virtual_time
async def test_a_job_that_makes_too_many_calls_gives_up(monkeypatch):
    monkeypatch.setitem(ops.MAX_ARTIFACTS, "snapshot", 2)

    async def work() -> None:
        for _ in range(3):
            recorder = model_calls_of_this_run()
            recorder.begin(object())
            recorder._open.clear()
            recorder.count -= 1
            calls_a_model()

    async with a_mesh("memory", AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session))
        assert ended.job.outcome == "failed"
        assert "as many as can be stored" in ended.error.message
        ((done, verdict),) = await records_of(session, ended.job, ops.JobComplete)
        assert (done.calls, verdict) == (2, Verdict.OK)


def model_calls_of_this_run() -> Recorder:
    from antiphon.runtime.inference.recorder import current

    found = current()
    assert found is not None
    return found


@pytest.mark.virtual_time
async def test_a_snapshot_that_cannot_be_stored_fails_the_attempt(monkeypatch):
    monkeypatch.setattr(
        model_calls, "check_size", lambda size, what, _: check_size(size, what, 1_000)
    )

    async def work() -> None:
        calls_a_model("x" * 5_000)

    async with a_mesh("memory", AUDITED) as mesh:
        await mesh.worker(work)
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session, retry=ONCE))
        assert ended.job.outcome == "exhausted"
        yields = await records_of(session, ended.job, ops.JobYield)
        assert "the snapshot of a model call has" in yields[-1][0].error.message


@pytest.mark.virtual_time
async def test_the_calls_of_a_cancelled_job_stay_on_the_log_and_their_bytes_go():
    async def work() -> None:
        calls_a_model()
        await asyncio.sleep(600)

    async with a_mesh("memory", AUDITED) as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(caretaking=False, connection=owner)
        session, blobs = owner.session, owner.session.engine.blobs
        await mesh.worker(work)
        job = await call(session)
        await until_there(session, job, ops.JobArtifact)
        await submission.cancel(session, KIND, job.id, reason="enough")
        ((body, _),) = await records_of(session, job, ops.JobArtifact)
        assert await blobs.has(body.digest)
        await submission.evict(session, KIND, job.id, body.digest)
        await node.reached((await session.log.last()).seq)
        await asyncio.sleep(0.01)
        await Evictor(node, grace_s=0.0).look()
        assert not await blobs.has(body.digest)
        assert len(await records_of(session, job, ops.JobArtifact)) == 1


@on_both_engines
async def test_a_dead_workers_calls_are_named_by_its_successor(engine):
    stored = asyncio.Event()

    async def work() -> str:
        calls_a_model("first" if not stored.is_set() else "second")
        if not stored.is_set():
            await asyncio.sleep(600)
        return "done"

    async with a_mesh(engine, replace(KEPT, audit_inference=True)) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        doomed = await mesh.worker(work, drain_s=0)
        job = await call(session)
        await until_there(session, job, ops.JobArtifact)
        stored.set()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(work)
        ended = await end_of(session, job)
        found = await snapshots_of(session, ended)
        assert [one.prompt.value[0]["content"] for one in found] == ["first", "second"]


@pytest.mark.processes
@on_both_engines_in_real_time
async def test_the_calls_of_a_handler_in_its_own_process_are_stored_too(engine):
    async with a_mesh(engine, AUDITED) as mesh:
        await mesh.worker(spawned.calls_models, how=HandlerOptions(run_in="process"))
        session = (await mesh.connection()).session
        ended = await end_of(session, await call(session, 3))
        assert ended.outputs[0].text == "3"
        found = await snapshots_of(session, ended)
        assert [one.source.call for one in found] == [0, 1, 2]
        assert all(ended.job.fence <= one.started for one in found)
