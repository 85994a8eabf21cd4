"""Handlers' model calls are captured without their help: stock clients, streams, tools, threads."""

import asyncio
import contextvars
import gzip
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import anthropic
import httpx
import httpx2
import openai
import pytest

from antiphon.core.inference.call_reader import parts_of, snapshot_of
from antiphon.core.inference.snapshot import Source, decode, encode
from antiphon.errors import GiveUp, Misconfigured
from antiphon.runtime.inference import open_call, transports
from antiphon.runtime.inference.recorder import Recorder
from antiphon.runtime.inference.transports import captured_by
from antiphon.testing.model_server import ModelServer

pytestmark = pytest.mark.processes

KEY = "sk-canary-0123456789"
USER = [{"role": "user", "content": "how warm is it?"}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
SOURCE = Source(
    mesh="m", kind="agent.ask", job="0" * 64, fence="0" * 16, worker="did:key:z1", call=0
)


@pytest.fixture(scope="module")
def server():
    with ModelServer() as running:
        yield running


class Heard:
    """A recorder, and what it was told."""

    def __init__(self, most=10):
        self.calls = []
        self.recorder = Recorder(
            self.calls.append, stamp=lambda: "0" * 16, now_s=lambda: 1.0, most=most
        )

    @property
    def parts(self):
        return [parts_of(one) for one in self.calls]

    def only(self):
        (one,) = self.parts
        return one


@pytest.fixture
def heard():
    return Heard()


def openai_client(server, **how):
    return openai.OpenAI(base_url=server.openai_url, api_key=KEY, max_retries=0, **how)


def anthropic_client(server, **how):
    return anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, **how)


# --- stock clients --------------------------------------------------------------------------------


def test_a_chat_of_the_stock_client_is_captured(server, heard):
    with captured_by(heard.recorder), openai_client(server) as client:
        client.chat.completions.create(model="gpt-x", messages=USER, temperature=0.5)
    found = heard.only()
    assert found.api == "openai.chat"
    assert (found.model, found.version, found.fingerprint) == ("gpt-x", "gpt-x-2026-01-01", "fp_1")
    assert found.prompt == USER
    assert found.parameters == {"temperature": 0.5}
    assert [(one.text, one.stop) for one in found.answers] == [("echo: how warm is it?", "stop")]
    assert found.input_tokens > 0
    assert found.output_tokens > 0


def test_a_streamed_chat_is_put_together(server, heard):
    with captured_by(heard.recorder), openai_client(server) as client:
        for _ in client.chat.completions.create(model="gpt-x", messages=USER, stream=True):
            pass
    found = heard.only()
    assert found.answers[0].text == "echo: how warm is it?"
    assert found.answers[0].stop == "stop"
    assert found.version == "gpt-x-2026-01-01"
    assert found.output_tokens > 0
    assert heard.calls[0].is_complete


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_the_model_calls_is_captured(server, heard, stream):
    with captured_by(heard.recorder), openai_client(server) as client:
        answer = client.chat.completions.create(
            model="gpt-x", messages=USER, tools=[TOOL], stream=stream
        )
        if stream:
            list(answer)
    (called,) = heard.only().answers[0].tool_calls
    assert (called.name, called.id) == ("weather", "call_1")
    assert called.arguments == {"query": "how warm is it?"}


def test_the_answer_of_a_tool_is_retrieved_context(server, heard):
    asked = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        *USER,
        {"role": "assistant", "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "call_1", "content": "23 degrees"},
    ]
    with captured_by(heard.recorder), openai_client(server) as client:
        client.chat.completions.create(model="gpt-x", messages=messages, tools=[TOOL])
    found = heard.only()
    assert found.context == ("23 degrees",)
    assert found.prompt[-1]["content"] == {"context": 0}
    assert found.prompt[:2] == messages[:2]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [None, [{"type": "function", "name": "weather"}]])
def test_a_response_is_captured(server, heard, stream, tools):
    asked = {"tools": [{**one, "parameters": {}} for one in tools]} if tools else {}
    with captured_by(heard.recorder), openai_client(server) as client:
        answer = client.responses.create(
            model="gpt-x", input="how warm is it?", instructions="be short", stream=stream, **asked
        )
        if stream:
            list(answer)
    found = heard.only()
    assert found.api == "openai.responses"
    assert found.prompt == {"input": "how warm is it?", "instructions": "be short"}
    (answer,) = found.answers
    if tools:
        assert [one.arguments for one in answer.tool_calls] == [{"query": "how warm is it?"}]
    else:
        assert answer.text == "echo: how warm is it?"
    assert answer.stop == "completed"


def test_embeddings_are_captured(server, heard):
    with captured_by(heard.recorder), openai_client(server) as client:
        client.embeddings.create(model="embed-x", input=["a", "bc"], encoding_format="float")
    found = heard.only()
    assert (found.api, found.prompt) == ("openai.embeddings", ["a", "bc"])
    assert [one.other for one in found.answers] == [([1.0, 0.5],), ([2.0, 0.5],)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [ANTHROPIC_TOOL]])
def test_a_message_of_the_stock_client_is_captured(server, heard, stream, tools):
    with captured_by(heard.recorder), anthropic_client(server) as client:
        answer = client.messages.create(
            model="claude-x",
            max_tokens=100,
            system="be kind",
            messages=USER,
            stream=stream,
            **({"tools": tools} if tools else {}),
        )
        if stream:
            list(answer)
    found = heard.only()
    assert found.api == "anthropic.messages"
    assert (found.model, found.version) == ("claude-x", "claude-x-2026-01-01")
    assert found.prompt == {"messages": USER, "system": "be kind"}
    (answer,) = found.answers
    if tools:
        (called,) = answer.tool_calls
        assert (called.name, called.arguments) == ("weather", {"query": "how warm is it?"})
        assert answer.stop == "tool_use"
    else:
        assert (answer.text, answer.stop) == ("echo: how warm is it?", "end_turn")
    assert found.input_tokens > 0
    assert found.output_tokens > 0


def test_documents_and_results_of_tools_are_retrieved_context(server, heard):
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain"}}
    document["source"]["data"] = "a manual"
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "23 degrees"}
    text = {"type": "text", "text": "well?"}
    messages = [{"role": "user", "content": [document, result, text]}]
    with captured_by(heard.recorder), anthropic_client(server) as client:
        client.messages.create(model="claude-x", max_tokens=9, messages=messages)
    found = heard.only()
    assert found.context == (document, "23 degrees")
    assert found.prompt["messages"][0]["content"] == [
        {"context": 0},
        {**result, "content": {"context": 1}},
        text,
    ]


async def test_async_clients_are_captured_too(server, heard):
    with captured_by(heard.recorder):
        async with openai.AsyncOpenAI(base_url=server.openai_url, api_key=KEY) as client:
            stream = await client.chat.completions.create(model="gpt-x", messages=USER, stream=True)
            async for _ in stream:
                pass
        other = anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
        about = {"model": "claude-x", "max_tokens": 9, "messages": USER}
        async with other, other.messages.stream(**about) as told:
            assert await told.get_final_text() == "echo: how warm is it?"
    assert [one.answers[0].text for one in heard.parts] == ["echo: how warm is it?"] * 2


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_both_libraries_are_captured_both_ways(server, heard, library):
    body = {"model": "gpt-x", "messages": USER}
    url = f"{server.openai_url}/chat/completions"
    with captured_by(heard.recorder):
        library.post(url, json=body)
        async with library.AsyncClient() as client:
            await client.post(url, json=body)
    assert [one.library.split()[0] for one in heard.calls] == [library.__name__] * 2
    assert [one.model for one in heard.parts] == ["gpt-x"] * 2


def test_the_openai_client_on_the_older_library_is_captured(server, heard):
    with captured_by(heard.recorder), httpx.Client() as http:
        client = openai_client(server, http_client=http)
        client.chat.completions.create(model="gpt-x", messages=USER)
    assert heard.calls[0].library.startswith("httpx 0")


# --- what is no known call ------------------------------------------------------------------------


def test_another_shape_is_kept_as_it_was(server, heard):
    with captured_by(heard.recorder):
        httpx2.post(f"{server.url}/generate", json={"model": "llama", "text": "hello"})
    made = snapshot_of(heard.calls[0], SOURCE)
    assert made.backend.api == "raw"
    assert made.model.id == "llama"
    assert made.prompt.value == {"model": "llama", "text": "hello"}
    assert made.output.value["received"] == {"model": "llama", "text": "hello"}
    assert decode(encode(made)) == made


def test_bytes_that_are_no_text_are_kept(server, heard):
    with captured_by(heard.recorder), pytest.raises(httpx2.HTTPError):
        httpx2.post(f"{server.url}/generate", content=b"\xff\xfe\x00")
    made = snapshot_of(heard.calls[0], SOURCE)
    assert made.prompt.base64 == "//4A"
    assert made.telemetry.error
    assert not made.telemetry.is_complete


def test_a_request_without_a_body_asks_no_model(server, heard):
    with captured_by(heard.recorder):
        httpx2.get(server.url)
    assert heard.calls == []
    assert heard.recorder.count == 0


def test_a_connection_that_fails_is_a_call_without_an_answer(heard):
    with captured_by(heard.recorder), pytest.raises(httpx2.ConnectError):
        httpx2.post("http://127.0.0.1:9/v1/chat/completions", json={"model": "m", "messages": []})
    made = snapshot_of(heard.calls[0], SOURCE)
    assert made.telemetry.error.startswith("ConnectError")
    assert made.telemetry.status is None
    assert not made.telemetry.is_complete


def test_what_is_too_long_is_kept_as_its_digest(server, heard, monkeypatch):
    monkeypatch.setattr(open_call, "MAX_BYTES", 200)
    long = [{"role": "user", "content": "x" * 500}]
    with captured_by(heard.recorder), openai_client(server) as client:
        client.chat.completions.create(model="gpt-x", messages=long)
    made = snapshot_of(heard.calls[0], SOURCE)
    assert made.redacted == ("size",)
    assert made.prompt.redacted == made.output.redacted == "size"
    assert made.prompt.hash.startswith("blake3:")
    assert made.prompt.size > 500


def test_a_compressed_answer_is_read(heard):
    answer = gzip.compress(b'{"model": "gpt-x-1", "choices": [{"message": {"content": "hi"}}]}')
    call = open_call.OpenCall(
        httpx2, heard.recorder, httpx2.Request("POST", "http://h/v1/chat/completions", json={})
    )
    call.asked(b'{"model": "gpt-x", "messages": []}')
    call.answered(httpx2.Response(200, headers={"content-encoding": "gzip"}, content=b""))
    call.took(answer)
    call.over()
    assert heard.only().answers[0].text == "hi"


# --- whose calls ----------------------------------------------------------------------------------


def ask(server):
    httpx2.post(f"{server.openai_url}/chat/completions", json={"model": "m", "messages": USER})


def test_outside_of_the_block_nothing_is_captured(server, heard):
    with captured_by(heard.recorder):
        pass
    ask(server)
    contextvars.Context().run(ask, server)
    assert heard.calls == []


def test_threads_and_pools_of_the_handler_are_captured(server, heard):
    with ThreadPoolExecutor(1) as older, captured_by(heard.recorder):
        thread = threading.Thread(target=ask, args=(server,))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(ask, [server] * 2))
        older.submit(ask, server).result()
    assert len(heard.calls) == 4


def test_a_thread_of_a_pool_goes_back_to_nobody(server, heard):
    with ThreadPoolExecutor(1) as pool:
        with captured_by(heard.recorder):
            pool.submit(ask, server).result()
        pool.submit(ask, server).result()
    assert len(heard.calls) == 1


async def test_two_runs_at_once_have_their_own_calls(server):
    async def run(heard, count):
        with captured_by(heard.recorder):
            for _ in range(count):
                await asyncio.to_thread(ask, server)

    one, other = Heard(), Heard()
    await asyncio.gather(run(one, 1), run(other, 3))
    assert (len(one.calls), len(other.calls)) == (1, 3)


def test_there_are_so_many_calls_and_no_more(server):
    heard = Heard(most=1)
    with captured_by(heard.recorder):
        ask(server)
        with pytest.raises(GiveUp, match="as many as can be stored"):
            ask(server)
    assert len(heard.calls) == 1


def test_a_stream_that_nobody_reads_on_is_told_at_the_end_of_the_run(server, heard):
    with captured_by(heard.recorder):
        client = openai_client(server)
        stream = iter(client.chat.completions.create(model="gpt-x", messages=USER, stream=True))
        next(stream)
    assert heard.calls == []
    heard.recorder.close()
    assert len(heard.calls) == heard.recorder.count == 1
    assert not heard.calls[0].is_complete
    client.close()


def test_a_call_after_the_end_of_the_run_is_not_of_the_job(server, heard):
    with captured_by(heard.recorder):
        heard.recorder.close()
        ask(server)
    assert heard.recorder.count == 0


async def test_aiohttp_is_refused_in_an_audited_run_alone(heard):
    class Connector:
        async def connect(self, request):
            return f"connected for {request}"

    transports._refuse(SimpleNamespace(BaseConnector=Connector))
    assert await Connector().connect("me") == "connected for me"
    with captured_by(heard.recorder):
        with pytest.raises(Misconfigured, match="aiohttp cannot be captured"):
            await Connector().connect("me")
        heard.recorder.close()
        assert await Connector().connect("me") == "connected for me"


# --- secrets --------------------------------------------------------------------------------------


def test_no_secret_is_anywhere_in_a_snapshot(server, heard):
    other = {"X-Team-Token": "team-secret-1", "Cookie": "session=cookie-secret-1"}
    with captured_by(heard.recorder):
        with openai_client(server, default_headers=other) as client:
            client.chat.completions.create(model="gpt-x", messages=USER)
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(model="missing", messages=USER)
        with anthropic_client(server) as client, pytest.raises(anthropic.NotFoundError):
            client.messages.create(model="missing", max_tokens=1, messages=USER)
        httpx2.post(
            f"http://me:password-1@127.0.0.1:{server.url.rpartition(':')[2]}/g?key=query-secret-1",
            json={"query": "query-secret-1"},
        )
    told = b"".join(encode(snapshot_of(one, SOURCE)) for one in heard.calls)
    assert len(heard.calls) == 4
    for secret in (KEY, "team-secret-1", "cookie-secret-1", "password-1", "query-secret-1"):
        assert secret.encode() not in told
    assert told.count(b"[secret]") >= 3
    assert all("secret" in snapshot_of(one, SOURCE).redacted for one in heard.calls[1:])
