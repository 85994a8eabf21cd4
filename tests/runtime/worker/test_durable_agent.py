"""`examples/durable_agent`: a Pydantic AI agent whose requests and tool calls are steps."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from antiphon import JobContext
from antiphon.core.families.jobs.ops import JobArtifact
from antiphon.runtime.caller import submission
from tests.runtime.meshes import KEPT, KIND, a_mesh, call, on_both_engines_in_real_time

pytest.importorskip("pydantic_ai", reason="the example needs pydantic-ai-slim (extra dev)")

from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import FunctionModel

EXAMPLE = Path(__file__).parents[3] / "examples" / "durable_agent" / "agent.py"
CITIES = ("Ghent", "Bonn")


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("durable_agent", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def stored_in(session, job):
    view = await session.read_lane(KIND, job.id)
    ops = [one.opened.op for one in view.history]
    return [op.body for op in ops if isinstance(op, JobArtifact)]


@on_both_engines_in_real_time
async def test_a_dead_workers_successor_asks_the_model_nothing_that_was_stored(engine, example):
    asked, called, is_late = [], [], asyncio.Event()

    async def model(messages, _):
        turn = sum(isinstance(one, ModelResponse) for one in messages)
        asked.append(turn)
        if turn < len(CITIES):
            calls = [ToolCallPart("measure", {"city": city}) for city in CITIES[: turn + 1]]
            return ModelResponse(parts=calls)
        return ModelResponse(parts=[TextPart("a coat")])

    agent = example.Agent(FunctionModel(model))

    @agent.tool_plain
    async def measure(city: str) -> dict[str, int]:
        called.append(city)
        if city == "Bonn" and not is_late.is_set():
            is_late.set()
            await asyncio.sleep(600)
        return {city: len(called)}

    seen = []

    async def work(ctx: JobContext) -> str:
        done = await agent.run("what to pack?", capabilities=[example.InSteps(ctx)])
        seen.extend(done.all_messages())
        return done.output

    # What the first run of an agent loads would block the loop for longer than a lease.
    await example.Agent(FunctionModel(model)).run("", message_history=[ModelResponse(parts=[])] * 2)
    asked.clear()
    async with a_mesh(engine, KEPT) as mesh:
        await mesh.node()
        session = (await mesh.connection()).session
        doomed = await mesh.worker(work, drain_s=0)
        job = await call(session)
        await is_late.wait()
        doomed._leases.close()  # a dead process renews nothing
        doomed.paused.add("sleep")
        await mesh.worker(work)
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert ended.outputs[0].text == '"a coat"', ended
        assert asked == [0, 1, 2], "three requests, by two workers"
        assert called.count("Ghent") == 2, "once for each call of it"
        assert called.count("Bonn") == 2, "it had not returned when its worker died"
        names = [one.name for one in await stored_in(session, job)]
        requests = [name for name in names if name.startswith("model")]
        assert requests == [f"model request {number}" for number in (1, 2, 3)]
        assert len(names) == 3 + 3
        returned = [
            part.content for one in seen for part in one.parts if isinstance(part, ToolReturnPart)
        ]
        assert returned[0] == {"Ghent": 1}, "as the first worker's tool said"


async def test_the_example_runs_with_the_model_that_it_brings(example):
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection()).session
        await mesh.worker(example.pack.function)
        job = await call(session, "Ghent")
        ended = await submission.wait_for_end(session, KIND, job.id)
        assert "pack a coat" in (ended.outputs[0].text or ""), ended
        assert len(await stored_in(session, job)) == 3
