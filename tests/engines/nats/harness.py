"""How these tests get at a real nats-server, and how they hurt one."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from antiphon.engines.nats import LocalServer, NatsEngine
from tests.patience import PATIENCE_S


@asynccontextmanager
async def stalled(server: LocalServer) -> AsyncIterator[None]:
    """While entered, the server receives and does not answer."""
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def connect(server: LocalServer, mesh: str, **extra) -> NatsEngine:
    settings = {"login": server.login, "create": True, **extra}
    return await NatsEngine.connect(server.url, mesh, **settings)


def sever(engine: NatsEngine) -> None:
    """Reset the TCP connection under the client's feet."""
    engine._connection._client._transport._io_writer.transport.abort()


async def until(holds, within_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
