"""A worker process of a chaos run: the real worker, handlers that tell the witness.

Started by forking from a server that has everything imported, so that replacing a killed worker
costs milliseconds and not the start of an interpreter. It is a process like any other: its own
key, its own connection, its own death. It dies with whoever started it, stopped or not.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import JobContext, assembly, telemetry
from antiphon.errors import AntiphonError, Unavailable
from antiphon.runtime.handlers import Handlers
from antiphon.runtime.home import Home
from antiphon.runtime.worker import WorkerSettings
from chaos import namespaces
from chaos.witness import Witness

AWAITING: Final = "chaos.await"
"""Jobs that give the loop its turns."""
BLOCKING: Final = "chaos.block"
"""Jobs in a thread, which nobody can cancel."""
KINDS: Final = (AWAITING, BLOCKING)
_PR_SET_PDEATHSIG: Final = 1
_FIRST_TRIES_S: Final = 60.0
"""A worker may come up while the server is down: so long it goes on knocking."""


class Orders(Struct, frozen=True, kw_only=True):
    """What a worker process is told."""

    home: Path
    witness: Path
    log: Path
    slots: int = 2
    drain_s: float = 2.0
    network: Path | None = None
    """The network namespace to work in (`namespaces.py`); None for the starter's own."""


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that forked it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def handlers_of(witness: Witness) -> Handlers:
    """Both kinds of handler; the argument is how long the work takes."""

    async def awaiting(_number: int, work_ms: int, *, ctx: JobContext) -> str:
        with witness.running(ctx.job, ctx.fence):
            await asyncio.sleep(work_ms / 1000)
        return ctx.fence

    def blocking(_number: int, work_ms: int, *, ctx: JobContext) -> str:
        with witness.running(ctx.job, ctx.fence):
            # Not `time.sleep`: under libfaketime that is an error (`clock_faking.py`).
            threading.Event().wait(work_ms / 1000)
        return ctx.fence

    handlers = Handlers()
    handlers.register(AWAITING, awaiting)
    handlers.register(BLOCKING, blocking)
    return handlers


async def work(orders: Orders) -> None:
    """Work until SIGTERM, then drain."""
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    witness = Witness(orders.witness)
    settings = WorkerSettings(slots=orders.slots, drain_s=orders.drain_s)
    deadline = time.monotonic() + _FIRST_TRIES_S
    while True:
        try:
            async with (
                assembly.join(Home(orders.home), "worker", kinds=KINDS) as station,
                assembly.working(station, handlers_of(witness), settings),
            ):
                witness.note("ready")
                deadline = 0.0  # from here on nothing may bring it down
                await asked.wait()
                return
        except (Unavailable, ExceptionGroup) as away:
            if time.monotonic() > deadline or not _is_about_the_engine(away):
                raise
            print(f"not up yet: {away}", file=sys.stderr, flush=True)
            await asyncio.sleep(0.1 + random.random() * 0.2)


def _is_about_the_engine(problem: Exception) -> bool:
    if isinstance(problem, ExceptionGroup):
        return all(_is_about_the_engine(one) for one in problem.exceptions)
    return isinstance(problem, Unavailable)


def main(orders: Orders) -> None:
    """The process's whole life: what `multiprocessing` calls after the fork."""
    die_with_parent()
    if orders.network is not None:
        namespaces.enter(orders.network)
        namespaces.end_with_keeper(orders.network)
    handle = os.open(orders.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    telemetry.configure("warning", "text")
    try:
        asyncio.run(work(orders))
    except AntiphonError as problem:
        print(f"worker ended: {problem!r}", file=sys.stderr, flush=True)
        raise
