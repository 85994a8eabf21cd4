"""A Pydantic AI agent whose job asks its model nothing twice.

antiphon worker agent.py
antiphon submit trip.pack Ghent
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from antiphon import JobContext, Mesh

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities import WrapModelRequestHandler, WrapToolExecuteHandler
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import ToolDefinition

mesh = Mesh.open()
ANY: TypeAdapter[Any] = TypeAdapter(Any)


class InSteps(AbstractCapability[Any]):
    """Makes each model request and each tool call of a run a step of the job."""

    def __init__(self, job: JobContext) -> None:
        """For one run of an agent in one run of this job."""
        self.job = job

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """The stored response, or the model's, which is stored before the agent goes on."""

        async def request() -> str:
            response = await handler(request_context)
            return ModelMessagesTypeAdapter.dump_json([response]).decode()

        stored = await self.job.step(f"model request {ctx.run_step}", request)
        (response,) = ModelMessagesTypeAdapter.validate_json(stored)
        if not isinstance(response, ModelResponse):
            raise TypeError(f"a {type(response).__name__} is stored where a response should be")
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - what Pydantic AI gives
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,  # noqa: ARG002 - the same
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """The stored value, or the tool's. The id of the call is in the stored response."""

        async def execute() -> str:
            return ANY.dump_json(await handler(args)).decode()

        return ANY.validate_json(
            await self.job.step(f"tool {call.tool_name} {call.tool_call_id}", execute)
        )


def pretend(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """A model that needs no server: it asks for the weather, and then it answers."""
    returned = [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    if not returned:
        return ModelResponse(parts=[ToolCallPart("weather", {"city": "Ghent"})])
    return ModelResponse(parts=[TextPart(f"pack a coat: {returned[-1].content}")])


agent = Agent(
    os.environ.get("MODEL") or FunctionModel(pretend),  # such as anthropic:claude-sonnet-5
    instructions="Say in one sentence what to pack.",
)


@agent.tool_plain
async def weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "celsius": 9, "rain": True}


@mesh.task("trip.pack")
async def pack(ctx: JobContext, city: str) -> str:
    """Ask the agent."""
    done = await agent.run(f"I travel to {city}.", capabilities=[InSteps(ctx)])
    return done.output
