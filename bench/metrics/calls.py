"""The tasks of `bench metrics`, and calls of them."""

from __future__ import annotations

from typing import Final

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import Retry, ScheduleBody
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import Handlers

STEADY: Final = "bench.steady"
SHAKY: Final = "bench.shaky"
LATER: Final = "bench.later"
NOBODY: Final = "bench.nobody"
"""A kind that no worker runs."""
TOKEN: Final = "0" * 64
"""The operator's; the ports are on loopback and the meshes last a minute."""


def handlers_for(kinds: list[str]) -> Handlers:
    """Tasks that succeed, fail for odd numbers, or fail once."""
    begun: set[int] = set()

    async def steady(number: int) -> int:
        return number

    async def shaky(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number

    async def later(number: int) -> int:
        if number not in begun:
            begun.add(number)
            raise RuntimeError("not yet")
        return number

    handlers = Handlers()
    for kind in kinds:
        handlers.register(kind, {SHAKY: shaky, LATER: later}.get(kind, steady))
    return handlers


def call(kind: str, number: int, *, trace: str | None = None) -> ScheduleBody:
    """A call of a task with one number."""
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    retry = Retry(attempts=2 if kind == LATER else 1, base_ms=10, cap_ms=20)
    return ScheduleBody(kind=kind, manifest=content, retry=retry, trace=trace)
