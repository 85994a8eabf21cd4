"""`bench latency --fleet N`: what many idle light workers cost the server and themselves.

Each worker is the real one, with a key and a connection of its own; a few processes run them as
tasks. When all are ready, the server is asked twice over its system account what passed
through it in between.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from antiphon import assembly
from antiphon.assembly import hosted_mesh
from antiphon.assembly.logins import Purpose, connect
from antiphon.assembly.mesh_connection import place
from antiphon.engines.nats import LocalServer
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.author import NoMark
from antiphon.runtime.worker.worker import WorkerSettings
from bench.latency.setup import RULES
from bench.measurement.process_usage import cpu_s, resident_mb
from bench.measurement.report import conclude, say

KIND: Final = "bench.fleet"
PROCESSES: Final = 4
STARTING_AT_ONCE: Final = 16
"""Workers of one process that come up at the same time."""
UP_WITHIN_S: Final = 300.0


async def answer(number: int) -> int:
    return number


async def run_workers(home: StateDirectory, count: int) -> None:
    """That many workers as tasks of this process, until it is killed."""
    described, access = home.mesh(), home.access()
    entropy = SystemEntropy()
    starting = asyncio.Semaphore(STARTING_AT_ONCE)
    up = asyncio.Semaphore(0)

    async def one(number: int) -> None:
        async with AsyncExitStack() as stack:
            async with starting:
                engine = await connect(described, access, Purpose(name=f"fleet-{number}"))
                stack.push_async_callback(engine.close)
                keyring = SeedKeyring(entropy.token(32))
                connection = place(engine, described.mesh, keyring, f"fleet-{number}", NoMark())
                handlers = Handlers()
                handlers.register(KIND, answer)
                await stack.enter_async_context(
                    assembly.working(
                        connection, handlers.executors(), WorkerSettings(slots=2, drain_s=0)
                    )
                )
            up.release()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))
        for _ in range(count):
            await up.acquire()
        print("ready", flush=True)


async def server_figures(server: LocalServer) -> dict[str, Any]:
    """The server's own figures (`varz`)."""
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


async def start(home: StateDirectory, count: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bench.latency.fleet", "--home", str(home.path), "--count", str(count)),
        stdout=PIPE,
    )


async def run(workers: int, watch_s: float) -> int:
    """Start the fleet, leave it idle, and measure what it costs."""
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as directory:
        home = StateDirectory(Path(directory) / "home")
        async with LocalServer(Path(directory) / "server") as server, AsyncExitStack() as stack:
            await hosted_mesh.found_on(home, server, name="bench", rules=RULES)
            assert server.pid is not None
            empty_mb = resident_mb(server.pid)
            begun = time.monotonic()
            share = -(-workers // PROCESSES)
            processes = [await start(home, share) for _ in range(PROCESSES)]
            for process in processes:
                stack.push_async_callback(_end, process)
            async with asyncio.timeout(UP_WITHIN_S):
                for process in processes:
                    assert process.stdout is not None
                    if await process.stdout.readline() != b"ready\n":
                        raise SystemExit("a part of the fleet did not come up")
            up_s = time.monotonic() - begun
            say(f"{share * PROCESSES} workers up after {up_s:.0f} s; watching for {watch_s:.0f} s")
            pids = [process.pid for process in processes]
            first, begun = await server_figures(server), time.monotonic()
            used_s = [cpu_s(pid) for pid in (server.pid, *pids)]
            await asyncio.sleep(watch_s)
            last, took_s = await server_figures(server), time.monotonic() - begun
            used_s = [
                cpu_s(pid) - before for pid, before in zip((server.pid, *pids), used_s, strict=True)
            ]
            conclude(
                workers=share * PROCESSES,
                processes=PROCESSES,
                connections=last["connections"],
                in_msgs_per_s=round((last["in_msgs"] - first["in_msgs"]) / took_s),
                out_msgs_per_s=round((last["out_msgs"] - first["out_msgs"]) / took_s),
                server_mb=round(resident_mb(server.pid)),
                server_empty_mb=round(empty_mb),
                fleet_mb=round(sum(resident_mb(pid) for pid in pids)),
                server_cpu_pct=round(used_s[0] / took_s * 100, 1),
                fleet_cpu_pct=round(sum(used_s[1:]) / took_s * 100, 1),
                up_s=round(up_s, 1),
                watched_s=round(took_s, 1),
            )
    return 0


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--count", type=int, required=True)
    args = parser.parse_args()
    asyncio.run(run_workers(StateDirectory(args.home), args.count))


if __name__ == "__main__":
    main()
