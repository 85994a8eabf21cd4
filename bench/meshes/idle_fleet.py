"""Many idle light workers on one server, and what passes through that server meanwhile.

Each worker is the real one, with a key and a connection of its own; a few processes run them as
tasks. Bare connections are the same without workers: they only answer the server's pings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import place
from antiphon.core.bus.subjects import BEAT, HEARTBEAT
from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.errors import AntiphonError
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import NoMark
from antiphon.runtime.worker.worker import WorkerSettings
from bench.measurement.child_process import child_process, start_together
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.meshes.event_loop import run

KIND: Final = "bench.fleet"
PROCESSES: Final = 4
LEAST: Final = 25
"""Workers for which another process is worth its start."""
STARTING_AT_ONCE: Final = 8
"""Workers of one process that come up at the same time."""
AGAIN_S: Final = 1.0
"""After which a worker that could not start tries again."""
UP_WITHIN_S: Final = 1_800.0
IDLE_S: Final = 300.0
"""After which an idle worker asks as rarely as it ever does."""
PARTS: Final = (
    ("pulls", "$JS.API.CONSUMER.MSG.NEXT."),
    ("reads", "$JS.API."),
    ("heartbeats", HEARTBEAT.at(user="")),
    ("beats", f".{BEAT.at()}"),
    ("answers", "_INBOX."),
)
"""The beginning of a subject says which part of a worker a message is of."""


class Watched(Struct, frozen=True, kw_only=True):
    """What a server and the processes of a fleet did in some time."""

    connections: int
    in_per_s: float
    """Messages that came to the server."""
    out_per_s: float
    server_cpu_pct: float
    server_mb: float
    fleet_cpu_pct: float
    fleet_mb: float
    watched_s: float


class Fleet:
    """Processes with idle workers or bare connections, as long as their stack is open."""

    def __init__(self, stack: AsyncExitStack, home: StateDirectory) -> None:
        self._stack, self._home = stack, home
        self.pids: list[int] = []
        self.count = 0

    async def add(self, count: int, *, are_bare: bool = False) -> float:
        """So many more, in processes of their own; how many seconds they took to come up."""
        begun = time.monotonic()
        processes = max(1, min(PROCESSES, count // LEAST))
        share, rest = divmod(count, processes)
        sizes = [share + (number < rest) for number in range(processes)]
        arguments = ["--home", str(self._home.path), *(["--bare"] if are_bare else [])]
        children = [
            child_process(__name__, *arguments, "--count", str(size), within_s=UP_WITHIN_S)
            for size in sizes
        ]
        self.pids += [pid for pid, _ in await start_together(self._stack, children)]
        self.count += count
        return time.monotonic() - begun

    async def watch(self, server: LocalServer, seconds: float) -> Watched:
        """Look at the server's own figures now and after that time."""
        assert server.pid is not None
        first, begun = await _server_figures(server), time.monotonic()
        used_s = [cpu_s(pid) for pid in (server.pid, *self.pids)]
        await asyncio.sleep(seconds)
        last, took_s = await _server_figures(server), time.monotonic() - begun
        pairs = zip((server.pid, *self.pids), used_s, strict=True)
        server_pct, *fleet_pct = [(cpu_s(pid) - before) / took_s * 100 for pid, before in pairs]
        return Watched(
            connections=last["connections"],
            in_per_s=round((last["in_msgs"] - first["in_msgs"]) / took_s, 1),
            out_per_s=round((last["out_msgs"] - first["out_msgs"]) / took_s, 1),
            server_cpu_pct=round(server_pct, 1),
            server_mb=round(resident_mb(server.pid), 1),
            fleet_cpu_pct=round(sum(fleet_pct), 1),
            fleet_mb=round(sum(map(resident_mb, self.pids))),
            watched_s=round(took_s, 1),
        )

    async def parts(self, server: LocalServer, seconds: float) -> dict[str, float]:
        """Messages a second of each part of one worker; one more connection hears everything."""
        found: Counter[str] = Counter()
        connection = await Connection.open(server.url, login=server.login, name="bench")

        def count(subject: bytes, _reply: bytes, _payload: bytes, _header: bytes) -> None:
            where = subject.decode()
            found[next((part for part, begin in PARTS if begin in where), "others")] += 1

        try:
            connection.listen(">", count)
            await asyncio.sleep(seconds)
        finally:
            await connection.close()
        return {part: round(found[part] / seconds / self.count, 4) for part in sorted(found)}


async def _server_figures(server: LocalServer) -> dict[str, Any]:
    """The server's own figures (`varz`), over its system account."""
    system = server.system_credentials
    login = Login(user=system.user, password=system.password)
    connection = await Connection.open(server.url, login=login, name="bench")
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_answer(_subject: bytes, _reply: bytes, payload: bytes, _header: bytes) -> None:
        if not answered.done():
            answered.set_result(payload)

    try:
        inbox = f"{connection.inbox}.varz"
        connection.listen(inbox, on_answer)
        connection.send(b"PUB $SYS.REQ.SERVER.PING.VARZ %b 0\r\n\r\n" % inbox.encode())
        async with asyncio.timeout(10):
            told: dict[str, Any] = json.loads(await answered)["data"]
    finally:
        await connection.close()
    return told


async def answer(number: int) -> int:
    return number


async def run_fleet(home: StateDirectory, count: int, *, are_bare: bool) -> None:
    """That many as tasks of this process, until it is ended."""
    described, access = home.mesh(), home.access()
    entropy = SystemEntropy()
    starting = asyncio.Semaphore(STARTING_AT_ONCE)
    up = asyncio.Semaphore(0)

    async def enter(stack: AsyncExitStack, name: str) -> None:
        engine = await connect(described, access, Purpose(name=name))
        stack.push_async_callback(engine.close)
        if are_bare:
            return
        connection = place(engine, described.mesh, SeedKeyring(entropy.token(32)), name, NoMark())
        handlers = Handlers()
        handlers.register(KIND, answer)
        settings = WorkerSettings(slots=2, drain_s=0)
        working = assembly.working(connection, handlers.executors(), settings)
        await stack.enter_async_context(working)

    async def one(name: str) -> None:
        while True:
            async with AsyncExitStack() as stack:
                try:
                    async with starting:
                        await enter(stack, name)
                except AntiphonError:  # too many start at once: as its service manager would
                    await asyncio.sleep(AGAIN_S)
                    continue
                up.release()
                await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(f"fleet-{number}"))
        for _ in range(count):
            await up.acquire()
        print(f"ready {time.process_time()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--bare", action="store_true")
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run(run_fleet(StateDirectory(args.home), args.count, are_bare=args.bare))


if __name__ == "__main__":
    main()
