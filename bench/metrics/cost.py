"""What scraping and traces cost a worker, in processor time per job.

One process, an engine in memory and one worker, so that nothing but the worker's own work is
measured. Jobs are submitted while it pauses; then the time begins. Short turns follow each other:
without anything, scraped, traced, in another order each round. What the machine does besides
changes more slowly than that, so each round compares what is comparable.

The scraper is in the same process, and its part counts as the worker's: an upper bound. It asks
once for each second that the worker computes, as a busy worker is asked each second.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, Literal

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from antiphon import assembly
from antiphon.assembly import MemoryMesh
from antiphon.interfaces.http.node_server import worker_server
from antiphon.runtime.caller.bulk_submission import submit_many
from antiphon.runtime.log.session import Session
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.sdk.http.access import HttpAccess
from antiphon.sdk.http.operator_token import OperatorToken
from antiphon.sdk.http.worker_view import WorkerView
from antiphon.settings import HttpAddress
from bench.measurement.report import say
from bench.metrics.calls import STEADY, TOKEN, call, handlers_for
from bench.metrics.scrape import fetch

How = Literal["plain", "metrics", "traces"]
HOWS: Final[tuple[How, ...]] = ("plain", "metrics", "traces")
SCRAPE_S: Final = 1.0
SLOTS: Final = 64
DONE_WITHIN_S: Final = 300.0
API: Final = "opentelemetry.trace"
PARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Bench:
    """A worker on a mesh in memory, and whoever submits."""

    def __init__(
        self, worker: Worker, caller: Session, port: int, provider: TracerProvider
    ) -> None:
        self._provider = provider
        self._exporter = InMemorySpanExporter()
        provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._worker = worker
        self._caller = caller
        self._port = port
        self._submitted = 0
        self._unscraped_s = 0.0

    async def turn_ms(self, how: How, jobs: int) -> float:
        """Milliseconds per job of one turn."""
        first, self._submitted = self._submitted, self._submitted + jobs
        parent = PARENT if how == "traces" else None
        with _traced(None):  # the caller's own spans are not the worker's
            bodies = [call(STEADY, number, trace=parent) for number in range(first, first + jobs)]
            await submit_many(self._caller, bodies)
        async with AsyncExitStack() as stack:
            stack.enter_context(_traced(self._provider if how == "traces" else None))
            began_s = time.process_time()
            self._worker.resume("sleep")
            async with asyncio.timeout(DONE_WITHIN_S):
                while self._worker.done < self._submitted:
                    await asyncio.sleep(0.01)
            if how == "metrics":
                self._unscraped_s += time.process_time() - began_s
                while self._unscraped_s >= SCRAPE_S:
                    self._unscraped_s -= SCRAPE_S
                    await fetch(self._port, TOKEN)
            spent_s = time.process_time() - began_s
            await self._worker.pause("sleep")
        self._exporter.clear()  # one that sends spans away does not keep them either
        gc.collect()  # what a turn leaves behind is not the next one's
        return spent_s / jobs * 1000


@contextmanager
def _traced(provider: TracerProvider | None) -> Iterator[None]:
    """Without a provider: a program that has not loaded OpenTelemetry has no such module.

    The provider is not installed for good, since a process can do that only once.
    """
    module, before = sys.modules.pop(API), trace.get_tracer
    if provider is not None:
        sys.modules[API] = module
        trace.get_tracer = provider.get_tracer  # type: ignore[assignment] # no provider argument
    try:
        yield
    finally:
        sys.modules[API] = module
        trace.get_tracer = before


@asynccontextmanager
async def opened() -> AsyncIterator[Bench]:
    """Everything that a turn needs; the worker pauses."""
    provider = TracerProvider()
    memory = MemoryMesh()
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(memory.connection("caller"))
        connection = await stack.enter_async_context(memory.connection("worker"))
        settings = WorkerSettings(slots=SLOTS, drain_s=0)
        working = assembly.working(connection, handlers_for([STEADY]).executors(), settings)
        worker = await stack.enter_async_context(working)
        await worker.pause("sleep")
        access = HttpAccess(worker, OperatorToken(TOKEN))
        server = worker_server(WorkerView(worker), access, HttpAddress("127.0.0.1", 0))
        port = await stack.enter_async_context(server)
        yield Bench(worker, caller.session, port, provider)
    provider.shutdown()


async def costs(jobs: int, rounds: int) -> dict[How, list[float]]:
    """Milliseconds per job of every turn; the first round, which loads code, does not count."""
    found: dict[How, list[float]] = {how: [] for how in HOWS}
    async with opened() as bench:
        for how in HOWS:
            await bench.turn_ms(how, max(jobs // 4, 10))
        for number in range(rounds):
            for how in (*HOWS[number % 3 :], *HOWS[: number % 3]):
                found[how].append(await bench.turn_ms(how, jobs))
            now = ", ".join(f"{how} {values[-1]:.3f}" for how, values in found.items())
            say(f"round {number + 1}: {now} ms per job")
    return found
