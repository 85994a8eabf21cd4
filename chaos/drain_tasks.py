"""What the workers of `chaos drain` run: work that outlasts the drain, and work that does not.

With `CHAOS_HURRY` set everything is quick: the second worker should show when it was given a job,
not how long that takes.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from antiphon import JobContext, Mesh
from chaos.witness import Witness

AWAITING, BLOCKING = "drain.await", "drain.block"

mesh = Mesh.open()
witness = Witness(Path(os.environ["CHAOS_WITNESS"]))
in_a_hurry = bool(os.environ.get("CHAOS_HURRY"))


@mesh.task(AWAITING)
async def awaiting(_number: int, work_ms: int, *, ctx: JobContext) -> str:
    with witness.running(ctx.job, ctx.fence):
        await asyncio.sleep(0 if in_a_hurry else work_ms / 1000)
    return ctx.fence


@mesh.task(BLOCKING)
def blocking(_number: int, work_ms: int, *, ctx: JobContext) -> str:
    with witness.running(ctx.job, ctx.fence):
        time.sleep(0 if in_a_hurry else work_ms / 1000)
    return ctx.fence
