"""How the engine suite gets at a real nats-server, and how it hurts one."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.ports import Engine
from antiphon.testing import engine_suite as suite
from antiphon.testing.local_server import shared_server


class NatsHarness:
    """One server; `copy` is where its store was put aside."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.copy = server.directory / "copy"

    async def connect(
        self, mesh: str, *, create: bool = True, loan_s: float | None = None
    ) -> NatsEngine:
        extra = {} if loan_s is None else {"loan_s": loan_s}
        return await connect(self.server, mesh, create=create, **extra)

    async def kill_server(self) -> None:
        self.server.kill()

    async def restart_server(self) -> None:
        await self.server.start()

    @asynccontextmanager
    async def stalled_server(self) -> AsyncIterator[None]:
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def sever(self, engine: Engine) -> None:
        assert isinstance(engine, NatsEngine)
        sever(engine)

    async def keep_copy(self) -> None:
        await self.server.stop()
        shutil.copytree(self.server.store, self.copy)
        await self.server.start()

    async def restore_older(self) -> None:
        await self.server.stop()
        shutil.rmtree(self.server.store)
        shutil.copytree(self.copy, self.server.store)
        await self.server.start()


async def connect(server: LocalServer, mesh: str, **extra) -> NatsEngine:
    settings = {"user": server.user, "password": server.password, "create": True, **extra}
    return await NatsEngine.connect(server.url, mesh, **settings)


def sever(engine: NatsEngine) -> None:
    """Reset the TCP connection under the client's feet."""
    engine._connection._client._transport._io_writer.transport.abort()


async def until(holds, within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def nats(*, own_server: bool) -> AsyncIterator[suite.Harness]:
    if not own_server:
        yield NatsHarness(shared_server())
        return
    async with LocalServer() as server:
        yield NatsHarness(server)
