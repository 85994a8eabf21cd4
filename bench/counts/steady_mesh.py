"""A mesh on which the same work is the same steps: virtual time, the memory engine, fixed delays.

Every request takes a millisecond of virtual time, so that work gathers as it does in front of a
real server; nothing depends on the machine's speed, on chance or on other processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from antiphon import assembly
from antiphon.assembly.mesh_connection import MeshConnection
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.key_files import SEED_BYTES, SeedKeyring
from antiphon.runtime.worker.worker import Worker, WorkerSettings
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import VirtualLoop
from bench.signed_log import KIND

EPOCH_MS: Final = 1_763_000_000_000
ANSWER_S: Final = 0.001
_LATER: Final = Fate(answer_delay_s=ANSWER_S)


class CountedRequests:
    """`Faults` without faults: each request is counted, and answered a little later."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def request(self, what: str) -> Fate:
        self.seen[what] += 1
        return _LATER

    def delivery(self) -> Fate:
        return FINE

    def notice(self) -> Fate:
        return FINE

    def bus(self) -> Fate:
        return FINE

    def reconnect(self) -> Fate:
        return FINE


class SteadyMesh:
    """An open mesh in this process, with a caller."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.requests = CountedRequests()
        clock = HostClock(loop, epoch_ms=EPOCH_MS)
        self._mesh = assembly.MemoryMesh(wall=clock, faults=self.requests)

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[MeshConnection]:
        async with self._connection("caller", 1) as connection:
            await connection.session.sync_control()
            yield connection

    @asynccontextmanager
    async def worker(self, slots: int) -> AsyncIterator[Worker]:
        async def task(_number: int) -> int:
            return 0

        handlers = Handlers()
        handlers.register(KIND, task)
        settings = WorkerSettings(slots=slots, drain_s=0)
        async with (
            self._connection("worker", 2) as connection,
            assembly.working(connection, handlers.executors(), settings) as worker,
        ):
            yield worker

    @asynccontextmanager
    async def _connection(self, alias: str, number: int) -> AsyncIterator[MeshConnection]:
        async with self._mesh.connection(alias, SeedKeyring(bytes([number]) * SEED_BYTES)) as one:
            yield one
