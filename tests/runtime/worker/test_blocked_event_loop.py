"""A coroutine that blocks the worker's loop keeps its lease from being renewed: it is told."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from antiphon import Mesh
from tests.runtime.meshes import eventually


@pytest.mark.parametrize("is_blocking", [True, False])
async def test_a_lost_lease_is_put_down_to_the_blocked_loop_only_where_it_was_blocked(is_blocking):
    mesh = Mesh.open(engine="memory")
    begun = asyncio.Event()

    @mesh.task("example.block", lease=5)
    async def block() -> None:
        begun.set()
        if is_blocking:
            time.sleep(3.5)  # that is the mistake
        await asyncio.sleep(60)

    with capture_logs() as events:
        async with mesh, mesh.worker() as worker:
            handle = await block.submit()
            await begun.wait()
            if not is_blocking:
                await handle.cancel("enough")
            await eventually(lambda: worker.busy == 0)
            await handle.cancel("enough")
    (lost,) = [event for event in events if event["event"] == "tenure_lost"]
    assert ("asyncio.to_thread" in lost.get("hint", "")) == is_blocking
    assert ("was blocked for" in lost.get("why", "")) == is_blocking
