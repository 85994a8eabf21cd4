"""One trace for a job, from its submission through every run; none where nothing is set up."""

import sys

import httpx2
import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from antiphon.core.families.jobs.ops import Retry
from antiphon.runtime import tracing
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.caller.submission import wait_for_end
from antiphon.runtime.inference.recorder import Recorder
from antiphon.runtime.inference.transports import captured_by
from antiphon.testing.model_server import ModelServer
from tests.runtime.meshes import CALM, KIND, a_mesh, call, eventually

TWICE = Retry(attempts=2, base_ms=10, cap_ms=20)


@pytest.fixture
def spans(monkeypatch):
    """What OpenTelemetry's SDK got."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter.get_finished_spans
    provider.shutdown()


async def fails_first(number: int) -> int:
    with trace.get_tracer("shop").start_as_current_span("inside"):
        fails_first.calls += 1
    if fails_first.calls == 1:
        raise ValueError("no luck")
    return number


async def ended(mesh, **fields):
    fails_first.calls = 0
    node = await mesh.node()
    worker = await mesh.worker(fails_first)
    job = await call(worker.session, 7, **fields)
    await wait_for_end(worker.session, KIND, job.id)
    await eventually(lambda: not worker.busy)
    return job, (await worker.session.read_lane(KIND, job.id)).submitted_with, node


@pytest.mark.virtual_time
async def test_a_submission_and_every_run_are_spans_of_one_trace(spans):
    async with a_mesh("memory", CALM) as mesh:
        job, body, _ = await ended(mesh, retry=TWICE)
    found = spans()
    submitted, inside, first, again, second = found
    assert [one.name for one in found] == [
        f"submit {KIND}",
        "inside",
        f"run {KIND}",
        "inside",
        f"run {KIND}",
    ]
    assert len({one.context.trace_id for one in found}) == 1
    own = submitted.context
    flags = f"{int(own.trace_flags):02x}"
    assert body.trace == f"00-{own.trace_id:032x}-{own.span_id:016x}-{flags}"
    assert first.parent.span_id == second.parent.span_id == submitted.context.span_id
    assert inside.parent.span_id == first.context.span_id
    assert again.parent.span_id == second.context.span_id
    assert dict(second.attributes) == {
        "antiphon.kind": KIND,
        "antiphon.job": job.id,
        "antiphon.attempt": 2,
        "antiphon.outcome": "succeeded",
    }
    assert first.status.status_code is trace.StatusCode.ERROR
    (event,) = first.events
    assert event.attributes["exception.type"] == "ValueError"
    assert 'raise ValueError("no luck")' in event.attributes["exception.stacktrace"]
    assert second.status.status_code is trace.StatusCode.UNSET


@pytest.mark.virtual_time
async def test_a_submission_belongs_to_the_callers_own_span_and_each_of_many_has_its_own(spans):
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        with trace.get_tracer("shop").start_as_current_span("request") as request:
            job = await call(session, 1)
        view = await session.read_lane(KIND, job.id)
        bodies = [
            (await session.read_lane(KIND, (await call(session, n)).id)).submitted_with
            for n in (2, 3)
        ]
        other = [mesh_body(one, f"{KIND}.again") for one in bodies]
        await submit_many(session, other)
    mine = f"{request.get_span_context().trace_id:032x}"
    assert view.submitted_with.trace.split("-")[1] == mine
    assert len({one.trace for one in bodies}) == 2
    assert mine not in {one.trace.split("-")[1] for one in bodies}
    assert len(spans()) == 6


def mesh_body(body, kind):
    content = replace(body.manifest, command=(f"@{kind}",))
    return replace(body, kind=kind, manifest=content, trace=None)


@pytest.mark.virtual_time
@pytest.mark.processes
def test_an_audited_model_call_is_a_span_with_the_attributes_of_generative_models(spans):
    heard = []
    recorder = Recorder(heard.append, stamp=lambda: "0" * 16, now_s=lambda: 1.0, most=9)
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "my name is Ada"}]}
    headers = {"authorization": "Bearer secret-key-1"}
    with (
        ModelServer() as server,
        trace.get_tracer("shop").start_as_current_span("outer"),
        captured_by(recorder),
    ):
        httpx2.post(f"{server.openai_url}/chat/completions", json=body, headers=headers)
        httpx2.post(f"{server.url}/other", json=body)
        with pytest.raises(httpx2.ConnectError):
            httpx2.post("http://127.0.0.1:9/v1/embeddings", json={"model": "e", "input": "a"})
    chat, other, failed, outer = spans()
    assert chat.name == "chat gpt-x"
    assert chat.kind is trace.SpanKind.CLIENT
    assert chat.parent.span_id == outer.context.span_id
    said = dict(chat.attributes)
    assert said.pop("url.full").endswith("/v1/chat/completions")
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.response.model": "gpt-x-2026-01-01",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": said["gen_ai.usage.input_tokens"],
        "gen_ai.usage.output_tokens": said["gen_ai.usage.output_tokens"],
        "http.response.status_code": 200,
    }
    assert other.name == "chat gpt-x"
    assert failed.attributes["error.type"] == "ConnectError"
    told = "".join(one.to_json() for one in spans())
    assert "Ada" not in told
    assert "secret-key-1" not in told
    assert len(heard) == 3


async def test_without_an_sdk_nothing_is_written_and_nothing_differs():
    async with a_mesh("memory", CALM) as mesh:
        _, body, _ = await ended(mesh, retry=TWICE)
    assert body.trace is None


def test_a_program_that_has_not_loaded_opentelemetry_does_not_load_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert tracing.current() is None
    with tracing.running(KIND, "0" * 64, 1, None) as span, tracing.continued(None):
        span.end("succeeded")
    assert "opentelemetry.trace" not in sys.modules
