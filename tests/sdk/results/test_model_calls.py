"""Model calls through the SDK: on a handle and in queries, checked, evicted, redacted."""

import pytest

from antiphon import Mesh
from antiphon.core.families.jobs.ops import JobComplete
from antiphon.core.record.verdict import Verdict
from antiphon.errors import JobFailed
from antiphon.runtime.caller import model_calls
from antiphon.sdk.archive.erasure import forget_job
from tests.runtime.inference.exchanges import calls_a_model

pytestmark = pytest.mark.virtual_time


def agent(mesh):
    @mesh.task("agent.ask")
    async def ask(words: str, *, fails: bool = False) -> str:
        calls_a_model(words)
        if fails:
            raise ValueError("no")
        return words.upper()

    return ask


@pytest.mark.req("M26", "M28")
async def test_a_handle_has_the_model_calls_of_its_job():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.set_rules({"audit_inference": True})
        ask = agent(mesh)
        async with mesh.worker():
            handle = await ask.submit("hello")
            assert await handle.result() == "HELLO"
            (call,) = await handle.model_calls()
            assert (call.model, call.number, call.where) == ("gpt-x", 0, "mesh")
            assert call.job_id == handle.id
            found = call.snapshot
            assert (found.model.id, found.model.version) == ("gpt-x", "gpt-x-1")
            assert found.backend.url == "http://models.example/v1/chat/completions"
            assert found.prompt.value == [{"role": "user", "content": "hello"}]
            assert [one.text for one in found.answers] == ["hi"]
            assert (found.tokens.input, found.tokens.output) == (2, 1)
            assert found.telemetry.status == 200
            assert call.fence <= found.started <= found.ended
            assert found.source.job == handle.id
            named = [one for one in await handle.outputs() if one.hash == call.hash]
            assert [one.type for one in named] == ["likewise.inference.snapshot"]


@pytest.mark.req("M27")
async def test_a_failed_job_keeps_its_calls_and_its_completion_is_accepted():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.set_rules({"audit_inference": True})
        ask = agent(mesh)
        async with mesh.worker():
            handle = await ask.options(attempts=1).submit("hello", fails=True)
            with pytest.raises(JobFailed):
                await handle.result()
            assert len(await handle.model_calls()) == 1
            history = (await handle.lane()).history
            ends = [one for one in history if isinstance(one.opened.op, JobComplete)]
            assert [(one.opened.op.body.calls, one.verdict) for one in ends] == [(1, Verdict.OK)]


async def test_queries_find_calls_by_model_kind_and_page():
    async with Mesh.open(engine="memory") as mesh:
        ask = agent(mesh)
        async with mesh.worker():
            await (await ask.submit("before")).result()
            await mesh.authority.set_rules({"audit_inference": True})
            for words in ("one", "two", "three"):
                await (await ask.submit(words)).result()
        queries = mesh.queries
        found = await queries.model_calls()
        asked = [one.snapshot.prompt.value[0]["content"] for one in found]
        assert asked == ["three", "two", "one"]
        first = await queries.model_calls(limit=2)
        rest = await queries.model_calls(limit=2, after=first.next)
        assert [*first, *rest] == found
        assert len(await queries.model_calls(model="gpt", kind="agent")) == 3
        assert await queries.model_calls(model="claude") == []
        assert await queries.model_calls(kind="other") == []
        forgotten = found[0].job_id
        await forget_job(mesh, "agent.ask", forgotten)
        assert await queries.model_calls() == [one for one in found if one.job_id != forgotten]


async def test_an_evicted_snapshot_leaves_its_record():
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.set_rules({"audit_inference": True})
        ask = agent(mesh)
        async with mesh.worker():
            handle = await ask.submit("hello")
            await handle.result()
            await mesh.artifacts.evict(handle)
            (call,) = await handle.model_calls()
            assert (call.where, call.snapshot, call.model) == ("evicted", None, "gpt-x")
            assert call.hash.startswith("blake3:")


async def test_a_snapshot_of_another_call_is_not_shown_as_this_one(monkeypatch):
    async with Mesh.open(engine="memory") as mesh:
        await mesh.authority.set_rules({"audit_inference": True})
        ask = agent(mesh)
        async with mesh.worker():
            handle = await ask.submit("hello")
            await handle.result()
        really = model_calls.decode

        def of_another(raw):
            return really(raw.replace(b'"call":0', b'"call":1'))

        monkeypatch.setattr(model_calls, "decode", of_another)
        (call,) = await handle.model_calls()
        assert (call.where, call.snapshot) == ("false", None)
