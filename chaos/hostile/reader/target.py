"""The mesh of `chaos hostile --only reader`: its members are processes of their own.

owner     `antiphon up`: the server, the gate and a full node
observer  `antiphon node`: a full node that may read everything
victim    `antiphon worker`, and the jobs that this process calls in its name
reader    may read, and floods (`client.py`)
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, structs

from antiphon.core.authority.grant_terms import Terms
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

    async def command_flooder(self, command: str) -> dict[str, Any]:
        """Give the reader its next command; what it has done so far."""
        assert self.flooder is not None
        assert self.flooder.stdin is not None
        self.flooder.stdin.write(command.encode() + b"\n")
        return await wait_for_event(self.flooder, "flooded", within_s=PATIENCE_S)

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


@asynccontextmanager
async def command(directory: Path, *words: str, ready: str = "ready") -> AsyncIterator[int]:
    """An `antiphon` command that runs beside the block; its process, once it is ready."""
    output = directory / f"output-{words[0]}"
    errors = directory / f"errors-{words[0]}"
    with output.open("wb") as out, errors.open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "antiphon"),
            *words,
            "--json",
            stdin=DEVNULL,
            stdout=out,
            stderr=err,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ANTIPHON_LOG_LEVEL": "error"},
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not any(_event(line) == ready for line in output.read_text().splitlines()):
            if process.returncode is not None or time.monotonic() > deadline:
                raise SystemExit(f"antiphon {words[0]} did not come up: {errors.read_text()}")
            await asyncio.sleep(0.05)
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _event(line: str) -> str:
    try:
        return str(json.loads(line).get("event"))
    except ValueError:
        return ""


@asynccontextmanager
async def flooding(target: TargetMesh, *words: str) -> AsyncIterator[TargetMesh]:
    """The mesh with its hostile member: a module that is run, and its arguments."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", *words),
        stdin=PIPE,
        stdout=PIPE,
        cwd=ROOT,
    )
    try:
        await wait_for_event(process, "ready", within_s=PATIENCE_S)
        yield structs.replace(target, flooder=process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


READING: Final = Terms(can=("read",), kinds=("*",), alias=READER)
WORKING: Final = Terms(can=("claim", "schedule"), kinds=("build.*",), alias="victim")


@asynccontextmanager
async def joined_mesh(
    directory: Path, *, hostile: Terms = READING, victim: Terms = WORKING
) -> AsyncIterator[tuple[TargetMesh, dict[str, StateDirectory]]]:
    """Everybody has joined and works, except the hostile member; and where each has its files."""
    home = StateDirectory(directory / "owner")
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        up = await start(command(directory, "init", "--name", "reader", "--home", str(home.path)))
        homes = {"owner": home}
        observing = Terms(can=("read",), kinds=("*",), alias="observer")
        for terms in (victim, observing, hostile):
            place = homes[terms.alias] = StateDirectory(directory / terms.alias)
            ticket = hosted_mesh.invite(home, terms)
            await hosted_mesh.redeem(place, ticket, alias=terms.alias)
        node = await start(command(directory, "node", "--home", str(homes["observer"].path)))
        tasks, own = "chaos.hostile.reader.tasks", str(homes["victim"].path)
        worker = await start(command(directory, "worker", tasks, "--home", own))
        mesh = await start(Mesh.open(home=homes["victim"].path, role="client"))
        yield TargetMesh(home, mesh, (up, node), None, worker), homes


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
