"""A full node in a process of its own, for a test that kills it.

Its arguments are a server, a login, a mesh and the replica's file. It prints the last sequence
that it has applied, again and again.
"""

import asyncio
import sys

from antiphon import assembly
from antiphon.engines.nats import Login, NatsEngine
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.replica.replica import Replica


async def main(url: str, user: str, password: str, mesh: str, file: str) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    engine = await NatsEngine.connect(url, mesh, login=Login(user=user, password=password))
    key = SeedKeyring(entropy.token(32))
    author = Author(mesh, key, clock, max_drift_ms=100, mark=NoMark())
    session = Session(engine, author, clock, entropy)
    await session.sync_control()
    connection = assembly.MeshConnection(session, key, "killed")
    async with assembly.replicating(connection, Replica(file, mesh=mesh), caretaking=False) as node:
        while True:
            print(node.applied, flush=True)
            await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
