"""Dramatiq on Redis, as its users run it: the `dramatiq` command with processes and threads."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from antiphon.processes.owned_process import start_owned
from bench.measurement.process_usage import cpu_s
from bench.peers.redis_server import RedisServer, environment, redis_server
from bench.peers.side import Figures, PeerLoad

POLL_S: Final = 0.005
DRAINED_WITHIN_S: Final = 600.0
ENDED_WITHIN_S: Final = 30.0


def enqueue(server: RedisServer, load: PeerLoad) -> float:
    """Put the messages into the queue as a program does; the processor time of it, in seconds."""
    os.environ["BENCH_REDIS_URL"] = server.url
    tasks: Any = importlib.import_module("bench.peers.dramatiq_tasks")
    broker_module: Any = importlib.import_module("dramatiq.brokers.redis")
    broker = broker_module.RedisBroker(url=server.url)
    broker.declare_queue(tasks.QUEUE)
    began_s = time.process_time()
    for number in range(load.jobs):
        broker.enqueue(tasks.noop.message(number))
    took_s = time.process_time() - began_s
    broker.close()
    return took_s


@asynccontextmanager
async def workers(place: Path, server: RedisServer, load: PeerLoad) -> AsyncIterator[Process]:
    """Its worker processes, beside a block."""
    process = await start_owned(
        sys.executable,
        *("-m", "dramatiq", "bench.peers.dramatiq_tasks"),
        *("--processes", str(load.processes), "--threads", str(load.threads)),
        *("--queues", "bench"),
        stdout=DEVNULL,
        stderr=DEVNULL,
        env=environment(
            BENCH_REDIS_URL=server.url,
            BENCH_STARTED=str(place / "started"),
            BENCH_WORK_MS=str(load.work_ms),
        ),
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(ENDED_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def drained_s(server: RedisServer, jobs: int, process: Process) -> float:
    """Seconds from the first message that was acknowledged to the last."""
    redis: Any = importlib.import_module("redis")
    client = redis.Redis.from_url(server.url)
    first_s = 0.0
    async with asyncio.timeout(DRAINED_WITHIN_S):
        while True:
            left = int(client.hlen("dramatiq:bench.msgs"))
            now_s = time.perf_counter()
            if not first_s and left < jobs:
                first_s = now_s
            if not left:
                client.close()
                return now_s - first_s
            if process.returncode is not None:
                raise SystemExit("the dramatiq command ended before its queue was empty")
            await asyncio.sleep(POLL_S)


def cpu_since_start(place: Path) -> float:
    """Processor time of the worker processes since they were ready, in seconds."""
    lines = (line.split() for line in (place / "started").read_text().splitlines())
    return sum(cpu_s(int(pid)) - float(before_s) for pid, before_s in lines)


async def dramatiq_round(load: PeerLoad) -> Figures:
    """One round on a fresh Redis."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        place = Path(directory)
        async with redis_server(place / "redis") as server:
            caller_s = enqueue(server, load)
            server_s = cpu_s(server.pid)
            async with workers(place, server, load) as process:
                took_s = await drained_s(server, load.jobs, process)
                worker_s = cpu_since_start(place)
            server_s = cpu_s(server.pid) - server_s
    each_ms = 1000 / load.jobs
    return Figures(
        per_s=load.jobs / took_s,
        worker_cpu_ms=worker_s * each_ms,
        server_cpu_ms=server_s * each_ms,
        caller_cpu_ms=caller_s * each_ms,
    )
