"""An open mesh on a run's servers: its rules, its founding, and a caller and a full node on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import msgspec
from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.logins import Purpose, connect
from antiphon.core.authority.rules import Rules
from antiphon.engines.nats import LocalServer
from antiphon.errors import AntiphonError
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.replica import Replica

SHORT_LEASES: Final = Rules(
    authority="open",
    max_drift_ms=500,
    lease_min_ms=1_000,
    lease_ms=1_000,
    lease_ms_max=2_000,
    offer_after_ms=2_000,
    attempts=100,
)
"""Leases as short as the drift allows, and so many attempts that no job is given up."""
FOUNDED_WITHIN_S: Final = 60.0
"""A new cluster elects its first leaders in this time."""
SETTLE_S: Final = 2.0
"""A cluster that is asked for a stream before its servers know each other is silent for 10 s."""


async def found_mesh(
    home: StateDirectory,
    servers: Sequence[LocalServer],
    rules: Rules,
    *,
    access: Access | None = None,
    ca: str = "",
) -> MeshFile:
    """Found an open mesh with as many copies of its log as there are servers.

    Logs in with the servers' user and password, unless `access` (and the `ca` to trust) is given.
    """
    described = MeshFile(
        mesh="",
        name="chaos",
        engine=",".join(server.url for server in servers),
        replicas=len(servers),
        ca=ca,
    )
    access = access or Access(user=servers[0].user, password=servers[0].password)
    owner = home.key("owner", SystemEntropy())
    recovery = home.key("recovery", SystemEntropy())
    try:
        signed_genesis = genesis.sign(
            owner.keyring, SystemClock(), name="chaos", recovery=recovery.keyring.did, rules=rules
        )
    finally:
        recovery.release()
        owner.release()
    described = msgspec.structs.replace(described, mesh=signed_genesis.mesh)
    deadline = time.monotonic() + FOUNDED_WITHIN_S
    if len(servers) > 1:
        await asyncio.sleep(SETTLE_S)
    while True:
        try:
            engine = await connect(described, access, Purpose(name="founder", create=True))
            try:
                await genesis.write(engine.log, signed_genesis)
            finally:
                await engine.close()
            break
        except AntiphonError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
    home.write(described, access)
    return described


class Attendants(Struct, frozen=True):
    """The caller and the full node that every run has beside its workers."""

    caller: Session
    node: FullNode
    replica: Replica
    """The node's; it shows which jobs have ended."""


@asynccontextmanager
async def attended(home: StateDirectory) -> AsyncIterator[Attendants]:
    """A caller, and a full node that takes care of overdue jobs, in this process."""
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(assembly.join(home, "client"))
        await caller.session.sync_control()
        connection = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(
            assembly.owned_replica(home.replica, home, connection)
        )
        node = await stack.enter_async_context(
            assembly.replicating(connection, replica, caretaking=True)
        )
        yield Attendants(caller.session, node, replica)
