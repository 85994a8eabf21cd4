"""A mesh of its own for each round: open, with chains of delegations, or with members.

`open` and `chain` log in with the server's own user, `members` with logins that the gate issued:
each worker process and the caller is a machine that joined by a ticket, in another account than
the log's, over TLS.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly import membership
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from bench.measurement.child_process import child_process
from bench.measurement.process_usage import cpu_s
from bench.meshes.local_cluster import found_mesh, running_servers
from bench.signed_log import KIND

Sort = Literal["open", "chain", "members"]


class FreshMesh(Struct, frozen=True):
    """A mesh without jobs."""

    caller: Session
    observer: Session
    """May read everything."""
    worker_homes: tuple[StateDirectory, ...]
    """The state directory of each worker process."""
    server_pids: tuple[int, ...]
    gate_pid: int = 0
    """0: there is no gate."""

    def server_cpu_s(self) -> float:
        """Processor time of all servers so far."""
        return sum(map(cpu_s, self.server_pids))

    def gate_cpu_s(self) -> float:
        """Processor time of the gate so far."""
        return cpu_s(self.gate_pid) if self.gate_pid else 0.0


@asynccontextmanager
async def fresh_mesh(sort: Sort, *, workers: int, replicas: int = 1) -> AsyncIterator[FreshMesh]:
    """A mesh on servers of its own, whose caller and workers may write already."""
    if sort == "members" and replicas != 1:
        raise SystemExit("the gate hosts one server: members are measured with --replicas 1")
    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as place:
        entered = (
            _with_members(Path(place), workers)
            if sort == "members"
            else _by_password(Path(place), sort, workers, replicas)
        )
        async with entered as mesh:
            await mesh.caller.sync_control()
            yield mesh


@asynccontextmanager
async def _by_password(
    place: Path, sort: Sort, workers: int, replicas: int
) -> AsyncIterator[FreshMesh]:
    home = StateDirectory(place / "home")
    rules = Rules(authority="open") if sort == "open" else Rules()
    async with running_servers(place, replicas) as servers:
        await found_mesh(home, servers, rules)
        homes = (home,) * workers
        await _introduce(homes)
        async with assembly.join(home, "client") as connection:
            pids = tuple(server.pid or 0 for server in servers)
            yield FreshMesh(connection.session, connection.session, homes, pids)


@asynccontextmanager
async def _with_members(place: Path, workers: int) -> AsyncIterator[FreshMesh]:
    owner = StateDirectory(place / "owner")
    async with AsyncExitStack() as stack:
        gate, said = await stack.enter_async_context(
            child_process("bench.meshes.gate_process", "--home", str(owner.path))
        )

        async def member(alias: str, can: str) -> StateDirectory:
            home = StateDirectory(place / alias)
            terms = Terms(can=(can,), kinds=(KIND,), alias=alias)
            await membership.redeem(home, membership.invite(owner, terms), alias=alias)
            return home

        homes = [await member(f"worker-{number}", "claim") for number in range(workers)]
        await _introduce(homes)
        caller = await stack.enter_async_context(
            assembly.join(await member("caller", "schedule"), "client", kinds=(KIND,))
        )
        observer = await stack.enter_async_context(assembly.join(owner, "client"))
        yield FreshMesh(
            caller.session, observer.session, tuple(homes), (int(said),), gate_pid=gate.pid
        )


async def _introduce(homes: Sequence[StateDirectory]) -> None:
    """Let the key of each worker process get its delegation now: no job waits for that later."""
    async with AsyncExitStack() as stack:
        for home in homes:
            await stack.enter_async_context(assembly.join(home, "worker", kinds=(KIND,)))
