"""The example tasks that `antiphon dev` runs if you give it no module."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh


async def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def echo(*values: Any, **named: Any) -> Any:
    """Its own arguments."""
    if named:
        return {"args": list(values), "kwargs": named}
    return values[0] if len(values) == 1 else list(values)


async def sleep(seconds: float = 1) -> str:
    """Nothing, for a while."""
    await asyncio.sleep(seconds)
    return f"slept {seconds:g} s"


async def fail(message: str = "as you wished") -> None:
    """An error, always."""
    raise RuntimeError(message)


def add_tasks(mesh: Mesh) -> None:
    """Register all of them."""
    for work in (add, echo, sleep, fail):
        mesh.task(f"example.{work.__name__}")(work)
