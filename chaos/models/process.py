"""A worker in a process of its own, whose handlers call models with the stock clients."""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import httpx2

from antiphon import assembly, telemetry
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.executors.handlers import HandlerOptions, Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.runs.job_run import JobRun
from antiphon.runtime.worker.worker import WorkerSettings

KIND: Final = "agent.ask"
HIDDEN: Final = "agent.hidden"
"""Run only by the worker whose capture was taken out."""
FORMS: Final = ("chat", "streamed", "tools", "message", "message_streamed", "responses")
CALLS: Final = {"tools": 2}
"""How many calls a job of a form makes, if it is not one."""
TOOL: Final[Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


class StockAgent:
    """Asks with the clients that OpenAI and Anthropic publish."""

    def __init__(self, url: str, key: str) -> None:
        import anthropic
        import openai

        self._openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
        self._anthropic = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0)

    async def ask(self, form: str, words: str) -> int:
        """How many calls it made."""
        messages: list[Any] = [{"role": "user", "content": words}]
        about: dict[str, Any] = {"model": "claude-example", "max_tokens": 50, "messages": messages}
        chat = self._openai.chat.completions
        result: dict[str, Any]
        match form:
            case "streamed":
                asked = await chat.create(model="gpt-example", messages=messages, stream=True)
                async for _ in asked:
                    pass
            case "tools":
                first = await chat.create(model="gpt-example", messages=messages, tools=[TOOL])
                said: Any = first.choices[0].message
                result = {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "it"}
                messages += [said.model_dump(exclude_none=True), result]
                await chat.create(model="gpt-example", messages=messages, tools=[TOOL])
            case "message":
                await self._anthropic.messages.create(**about)
            case "message_streamed":
                async with self._anthropic.messages.stream(**about) as stream:
                    await stream.get_final_text()
            case "responses":
                await self._openai.responses.create(model="gpt-example", input=words)
            case _:
                await chat.create(model="gpt-example", messages=messages)
        return CALLS.get(form, 1)


class PlainAgent:
    """Asks the same without those clients, which take seconds to import."""

    def __init__(self, url: str, key: str) -> None:
        self._client = httpx2.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"})

    async def ask(self, form: str, words: str) -> int:
        """How many calls it made."""
        path = "/v1/messages" if form.startswith("message") else "/v1/chat/completions"
        body = {"model": "gpt-example", "messages": [{"role": "user", "content": words}]}
        for _ in range(CALLS.get(form, 1)):
            await self._client.post(path, json={**body, "stream": "streamed" in form})
        return CALLS.get(form, 1)


def without_capture() -> None:
    """Have the runs of this process know nothing of audit, as those of an older worker."""
    runs: Any = JobRun
    really = runs.__init__

    def begin(self: JobRun, *given: Any) -> None:
        really(self, *given)
        self.model_calls = None

    runs.__init__ = begin


async def work(args: argparse.Namespace) -> None:
    """Be a worker until killed."""
    agent = (StockAgent if args.stock else PlainAgent)(args.url, args.key)

    async def ask(form: str, words: str) -> int:
        return await agent.ask(form, words)

    handlers = Handlers()
    handlers.register(HIDDEN if args.without_capture else KIND, ask, HandlerOptions())
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            assembly.join(StateDirectory(args.home), "worker")
        )
        executors = handlers.executors(Artifacts(connection.session.engine.blobs))
        await stack.enter_async_context(
            assembly.working(connection, executors, WorkerSettings(slots=8))
        )
        print(json.dumps({"event": "ready"}), flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """The command line of the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--without-capture", action="store_true")
    args = parser.parse_args()
    telemetry.configure("warning", "text")
    if args.without_capture:
        without_capture()
    asyncio.run(work(args))


if __name__ == "__main__":
    main()
