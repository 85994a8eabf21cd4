"""An agent that calls two models with their stock clients; the mesh records what it asked.

`MODEL_URL` is where the models are. Without it a local server answers, which only repeats what it
is told, so that the example needs neither a network nor a key.
"""

import os

import anthropic
import openai

from antiphon import Mesh
from antiphon.testing.model_server import ModelServer

mesh = Mesh.open()
URL = os.environ.get("MODEL_URL") or ModelServer().start().url
KEY = os.environ.get("MODEL_KEY", "no-key-needed")

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}


def weather(_: str) -> str:
    """The tool."""
    return "23 degrees and dry"


@mesh.task("agent.ask")
async def ask(question: str) -> str:
    """Answer a question; the model may look at the weather first."""
    messages: list[dict[str, object]] = [{"role": "user", "content": question}]
    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY) as client:
        while True:
            answer = await client.chat.completions.create(
                model="gpt-example", messages=messages, tools=[WEATHER]
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = {"role": "tool", "tool_call_id": call.id}
                messages.append({**result, "content": weather(call.function.arguments)})


@mesh.task("agent.shorten")
def shorten(text: str) -> str:
    """Make a text shorter, with a streamed answer; in a thread."""
    with (
        anthropic.Anthropic(base_url=URL, api_key=KEY) as client,
        client.messages.stream(
            model="claude-example",
            max_tokens=200,
            system="Say it in one sentence.",
            messages=[{"role": "user", "content": text}],
        ) as stream,
    ):
        return stream.get_final_text()
