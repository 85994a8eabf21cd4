"""The rules of a run's mesh, and a caller and a full node on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.core.authority.rules import Rules
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica import Replica

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
