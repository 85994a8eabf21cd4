"""What the workers of `chaos drain` run: work that outlasts the drain, and work that does not.

With `CHAOS_QUICK` set every job ends at once: the second worker shows when it was given a job, not
how long that takes.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from antiphon import JobContext, Mesh
from chaos.audit.execution_journal import JournalWriter

ASYNC_KIND, BLOCKING_KIND = "drain.async", "drain.blocking"

mesh = Mesh.open()
journal = JournalWriter(Path(os.environ["CHAOS_JOURNAL"]))
is_quick = bool(os.environ.get("CHAOS_QUICK"))


@mesh.task(ASYNC_KIND)
async def awaiting(_number: int, work_ms: int, *, ctx: JobContext) -> str:
    with journal.running(ctx.job_id, ctx.fence):
        await asyncio.sleep(0 if is_quick else work_ms / 1000)
    return ctx.fence


@mesh.task(BLOCKING_KIND)
def blocking(_number: int, work_ms: int, *, ctx: JobContext) -> str:
    with journal.running(ctx.job_id, ctx.fence):
        time.sleep(0 if is_quick else work_ms / 1000)
    return ctx.fence
