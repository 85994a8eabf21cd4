"""What worker processes say on standard output: a JSON object a line, each with its event."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from typing import Any


async def heard(process: Process, event: str, *, within_s: float) -> dict[str, Any]:
    """Wait until the process says that; whatever else it says before is passed over."""
    assert process.stdout is not None
    async with asyncio.timeout(within_s):
        while line := await process.stdout.readline():
            told: dict[str, Any] = json.loads(line)
            if told["event"] == event:
                return told
    raise SystemExit(f"a worker ended before it said {event!r}")
