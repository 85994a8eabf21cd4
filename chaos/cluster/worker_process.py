"""A worker process of a run: the real worker, with handlers that write the execution journal.

Forked from a server that has everything imported, so that replacing a killed worker costs
milliseconds and not the start of an interpreter. Each has a key and a connection of its own. It
is killed when the process that started it ends, even while it is stopped.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import JobContext, assembly
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings
from chaos.audit.execution_journal import JournalWriter
from chaos.cluster.child_process import begin

ASYNC_KIND: Final = "chaos.await"
"""Jobs that yield to the event loop."""
BLOCKING_KIND: Final = "chaos.block"
"""Jobs in a thread, which cannot be cancelled."""
KINDS: Final = (ASYNC_KIND, BLOCKING_KIND)
STEP_KINDS: Final = ("chaos.steps.await", "chaos.steps.block")
"""The same in steps: each is in the journal when it is computed."""
ASK_KIND: Final = "chaos.ask"
"""Jobs that ask people, and return what they answer."""
QUESTION_KIND: Final = "people.approve"
CHOICES: Final = ("yes", "no", "later")
_CONNECT_WITHIN_S: Final = 60.0
"""A worker may start while the server is down: it tries to connect for this long."""


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """How a worker process works."""

    home: Path
    journal: Path
    log: Path
    slots: int = 2
    drain_s: float = 2.0
    network: Path | None = None
    """The network namespace to work in; None for that of the parent."""


def handlers_of(journal: JournalWriter) -> Handlers:
    """A handler for each kind; its second argument is how long the work takes."""

    async def awaiting(_number: int, work_ms: int, *, ctx: JobContext) -> str:
        with journal.running(ctx.job_id, ctx.fence):
            await asyncio.sleep(work_ms / 1000)
        return ctx.fence

    def blocking(_number: int, work_ms: int, *, ctx: JobContext) -> str:
        with journal.running(ctx.job_id, ctx.fence):
            # Not `time.sleep`: under libfaketime that is an error (`clock/fake_clock.py`).
            threading.Event().wait(work_ms / 1000)
        return ctx.fence

    def step(ctx: JobContext, number: int, step_ms: int) -> str:
        journal.note("step", job_id=ctx.job_id, fence=ctx.fence, step=number)
        threading.Event().wait(step_ms / 1000)
        return f"{number} under {ctx.fence}"

    async def in_steps(steps: int, step_ms: int, _number: int, *, ctx: JobContext) -> list[str]:
        with journal.running(ctx.job_id, ctx.fence):
            return [
                await ctx.step(f"step {at}", partial(step, ctx, at, step_ms)) for at in range(steps)
            ]

    def in_blocking_steps(steps: int, step_ms: int, _number: int, *, ctx: JobContext) -> list[str]:
        with journal.running(ctx.job_id, ctx.fence):
            return [
                ctx.step(f"step {at}", partial(step, ctx, at, step_ms)).wait()
                for at in range(steps)
            ]

    async def asking(number: int, work_ms: int, *, ctx: JobContext) -> list[str]:
        journal.note("step", job_id=ctx.job_id, fence=ctx.fence, step=number)
        first = await ctx.ask(f"go on with {number}?", kind=QUESTION_KIND, choices=CHOICES)
        await asyncio.sleep(work_ms / 1000)
        text = f"and after {first!r}?"
        second = await ctx.ask(text, kind=QUESTION_KIND, name="second", choices=CHOICES)
        return [first, second]

    handlers = Handlers()
    handlers.register(ASK_KIND, asking)
    handlers.register(ASYNC_KIND, awaiting)
    handlers.register(BLOCKING_KIND, blocking)
    for kind, function in zip(STEP_KINDS, (in_steps, in_blocking_steps), strict=True):
        handlers.register(kind, function)
    return handlers


async def work(config: WorkerConfig) -> None:
    """Work until SIGTERM, then drain."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    journal = JournalWriter(config.journal)
    settings = WorkerSettings(slots=config.slots, drain_s=config.drain_s)
    deadline = time.monotonic() + _CONNECT_WITHIN_S
    while True:
        try:
            async with (
                assembly.join(
                    StateDirectory(config.home), "worker", kinds=(*KINDS, *STEP_KINDS, ASK_KIND)
                ) as connection,
                assembly.working(connection, handlers_of(journal).executors(), settings),
            ):
                journal.note("ready")
                deadline = 0.0  # from here on it must stay up
                await asked.wait()
                return
        except (Unavailable, ExceptionGroup) as problem:
            if time.monotonic() > deadline or not _is_unavailable(problem):
                raise
            print(f"not up yet: {problem}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.1 + random.random() * 0.2)


def _is_unavailable(problem: Exception) -> bool:
    if isinstance(problem, ExceptionGroup):
        return all(_is_unavailable(one) for one in problem.exceptions)
    return isinstance(problem, Unavailable)


def main(config: WorkerConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log, network=config.network, level="warning")
    try:
        asyncio.run(work(config))
    except AntiphonError as problem:
        print(f"worker ended: {problem!r}", file=sys.stderr, flush=True)
        raise
