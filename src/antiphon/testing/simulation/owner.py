"""The owner's machine: founds the mesh and changes routes and rules while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import ops, subjects
from antiphon.core.rules import Rules
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.peer import Peer, commit_control
from antiphon.testing.simulation.ground import Ground
from antiphon.testing.simulation.machines import Machine
from antiphon.testing.simulation.workload import KINDS
from antiphon.testing.virtual_time import HostClock

RULES: Final = Rules(
    authority="open",
    lease_ms=10_000,
    lease_ms_max=40_000,
    attempts=4,
    retry_after_max_ms=60_000,
    offer_after_ms=5_000,
    yields_max=12,
)
"""Short leases, so that an hour holds many of their ends."""


class Change(Struct, frozen=True):
    """One control op to be written."""

    op: type[ops.MeshRules | ops.MeshRoute]
    body: ops.RulesBody | ops.RouteBody
    subject: str


class OwnerMachine(Machine):
    """Writes control ops, one after the other."""

    def __init__(self, ground: Ground, name: str, *, clock: HostClock) -> None:
        """Nothing to write yet."""
        super().__init__(ground, name, clock=clock)
        self._changes: deque[Change] = deque()
        self._wake = asyncio.Event()
        self.is_idle = True

    def route(self, kind: str, target: str | None) -> None:
        """Let only one node claim a kind, or everybody again."""
        subject = subjects.control(self.ground.mesh, f"route.{kind}")
        body = ops.RouteBody(kind=kind, target=target)
        self._push(Change(ops.MeshRoute, body, subject))

    def rule(self, attempts: int) -> None:
        """Change what a job gets that does not say how often it may be tried."""
        body = ops.RulesBody(rules=replace(RULES, attempts=attempts))
        self._push(Change(ops.MeshRules, body, subjects.control(self.ground.mesh, "rules")))

    def clear_routes(self) -> None:
        """Let everybody claim everything again."""
        for kind in KINDS:
            self.route(kind, None)

    def _push(self, change: Change) -> None:
        self.is_idle = False
        self._changes.append(change)
        self._wake.set()

    async def run(self) -> None:
        """Write what is to be written, again until the rules accept it."""
        peer = self.connect()
        await peer.sync_control()
        while True:
            while self._changes:
                if await self._write(peer, self._changes[0]):
                    self._changes.popleft()
                else:
                    await asyncio.sleep(2.0)
            self.is_idle = True
            self._wake.clear()
            await self._wake.wait()

    async def _write(self, peer: Peer, change: Change) -> bool:
        try:
            await peer.sync_control()
            prev = peer.history.tail(change.subject)
            await commit_control(peer, peer.author.draft(change.op, change.body, prev=prev))
        except (Conflict, Rejected, Unavailable):
            return False
        return True
