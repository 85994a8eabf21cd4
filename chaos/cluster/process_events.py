"""Events of a child process: JSON objects on its standard output, one per line."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from typing import Any


async def wait_for_event(process: Process, event: str, *, within_s: float) -> dict[str, Any]:
    """Wait for an event of that name, skip others before it, and return its fields."""
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        while line := await process.stdout.readline():
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
    raise SystemExit(f"a process ended before its event {event!r}")
