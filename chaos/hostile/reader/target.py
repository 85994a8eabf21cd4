"""The mesh of `chaos hostile --only reader`: its members are processes of their own.

owner     `antiphon up --http`: the server, the gate, a full node and its HTTP interface
observer  `antiphon node`: a full node that may read everything
victim    `antiphon worker`, and the jobs that this process calls in its name
reader    may read, and floods (`client.py`)
prober    asks the owner's node whether it is alive, and the sink, which reads and does nothing
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from antiphon.core.authority.grant_terms import Terms
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from chaos.cluster.process_events import wait_for_event

PATIENCE_S: Final = 60.0
ROOT: Final = Path(__file__).parents[3]
READER: Final = "reader"


class TargetMesh(Struct, frozen=True):
    """The mesh and its members."""

    home: StateDirectory
    """The owner's."""
    victim: Mesh
    full_nodes: tuple[int, ...]
    """Process ids."""
    flooder: Process | None
    worker: int = 0
    """Another one."""
    port: int = 0
    """Of the owner's HTTP interface."""
    sink: int = 0
    """The port of a process that reads what it is sent and does nothing."""
    prober: Process | None = None

    async def command_flooder(self, command: str) -> dict[str, Any]:
        """Give the reader its next command; what it has done so far."""
        assert self.flooder is not None
        assert self.flooder.stdin is not None
        self.flooder.stdin.write(command.encode() + b"\n")
        return await wait_for_event(self.flooder, "flooded", within_s=PATIENCE_S)

    async def worst_probes_s(self) -> tuple[float, float]:
        """The longest time until a probe was answered since this was asked: by node and sink."""
        assert self.prober is not None
        assert self.prober.stdin is not None
        self.prober.stdin.write(b"\n")
        told = await wait_for_event(self.prober, "probed", within_s=PATIENCE_S)
        node_s, sink_s = told["worst_s"]
        return round(node_s, 2), round(sink_s, 2)

    @property
    def ended(self) -> list[str]:
        """The parts of the mesh whose process has ended."""
        pids = (*self.full_nodes, self.worker)
        parts = zip(("host", "observer", "worker"), pids, strict=True)
        return [name for name, pid in parts if not _is_running(pid)]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Started(Struct, frozen=True):
    """A command that runs: its process, and what it said when it was ready."""

    pid: int
    said: dict[str, Any]


def _words(*words: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).parent / "antiphon"), *words, "--json")


_ENVIRONMENT: Final = {"PYTHONPATH": str(ROOT), "ANTIPHON_LOG_LEVEL": "error"}


@asynccontextmanager
async def command(directory: Path, *words: str) -> AsyncIterator[Started]:
    """An `antiphon` command that runs beside the block, once it is ready."""
    output = directory / f"output-{words[0]}"
    errors = directory / f"errors-{words[0]}"
    with output.open("wb") as out, errors.open("wb") as err:
        process = await start_owned(
            *_words(*words),
            stdin=DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, **_ENVIRONMENT},
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (ready := _ready(output)):
            if process.returncode is not None or time.monotonic() > deadline:
                raise SystemExit(f"antiphon {words[0]} did not come up: {errors.read_text()}")
            await asyncio.sleep(0.05)
        yield Started(process.pid, ready)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _ready(output: Path) -> dict[str, Any]:
    """What a command said when it was ready; empty: it is not."""
    for line in output.read_text().splitlines():
        with suppress(ValueError):
            said: dict[str, Any] = json.loads(line)
            if said.get("event") == "ready":
                return said
    return {}


async def _found(home: StateDirectory) -> None:
    """`antiphon init`, without hosting it."""
    process = await start_owned(
        *_words("init", "--no-up", "--name", "reader", "--home", str(home.path)),
        stdin=DEVNULL,
        stdout=DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
    )
    if await process.wait():
        raise SystemExit("antiphon init failed")


@asynccontextmanager
async def running(*words: str) -> AsyncIterator[tuple[Process, dict[str, Any]]]:
    """A module that runs as a process beside the block, with its arguments; and what it said."""
    process = await start_owned(
        sys.executable,
        *("-m", *words),
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
    )
    try:
        yield process, await wait_for_event(process, "ready", within_s=PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def flooding(target: TargetMesh, *words: str) -> AsyncIterator[TargetMesh]:
    """The mesh with its hostile member: a module that is run, and its arguments."""
    async with running(*words) as (process, _):
        yield structs.replace(target, flooder=process)


READING: Final = Terms(can=("read",), kinds=("*",), alias=READER)
WORKING: Final = Terms(can=("claim", "schedule"), kinds=("build.*",), alias="victim")


@asynccontextmanager
async def joined_mesh(
    directory: Path, *, hostile: Terms = READING, victim: Terms = WORKING
) -> AsyncIterator[tuple[TargetMesh, dict[str, StateDirectory]]]:
    """Everybody has joined and works, except the hostile member; and where each has its files."""
    home = StateDirectory(directory / "owner")
    async with AsyncExitStack() as stack:
        start, own = stack.enter_async_context, ("--home", str(home.path))
        await _found(home)
        up = await start(command(directory, "up", "--http", "127.0.0.1:0", *own))
        port = int(up.said["http"].rpartition(":")[2])
        homes = {"owner": home}
        observing = Terms(can=("read",), kinds=("*",), alias="observer")
        for terms in (victim, observing, hostile):
            place = homes[terms.alias] = StateDirectory(directory / terms.alias)
            ticket = hosted_mesh.invite(home, terms)
            await hosted_mesh.redeem(place, ticket, alias=terms.alias)
        node = await start(command(directory, "node", "--home", str(homes["observer"].path)))
        own = ("--home", str(homes["victim"].path))
        worker = await start(command(directory, "worker", "chaos.hostile.reader.tasks", *own))
        mesh = await start(Mesh.open(home=homes["victim"].path, role="client"))
        _, said = await start(running("chaos.hostile.http.sink"))
        sink = int(said["port"])
        prober, _ = await start(running("chaos.hostile.http.prober", str(port), str(sink)))
        nodes = (up.pid, node.pid)
        made = TargetMesh(home, mesh, nodes, None, worker.pid, port, sink, prober)
        yield made, homes


@asynccontextmanager
async def target_mesh(directory: Path) -> AsyncIterator[TargetMesh]:
    """The mesh, and a member that may only read."""
    async with joined_mesh(directory) as (target, homes):
        home, reader = homes["owner"], homes[READER]
        owner = home.signer("owner").did
        async with with_authority(home.path) as mesh:
            control = await mesh.connection.session.sync_control()
            given = control.grants.given_to(reader.signer("machine").did, before=2**62)
            cids = [one.cid for one in given if one.payload.iss == owner]
        others = [homes[alias].access().user for alias in ("victim", "observer")]
        words = (str(reader.path), owner, ",".join(cids), ",".join(others))
        async with flooding(target, "chaos.hostile.reader.client", *words) as flooded:
            yield flooded
