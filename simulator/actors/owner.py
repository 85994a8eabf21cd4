"""The authors of control ops: the owner, its heir, middle-men, and the holder of the recovery key.

Each is a machine with a list of things to write, one after the other, again until the rules accept
it or say that it is not theirs to write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Limit, Rules
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    EvidenceBody,
    MeshCoordinator,
    MeshEvidence,
    MeshPause,
    MeshReadmit,
    MeshRecover,
    MeshRoute,
    MeshRules,
    PauseBody,
    ReadmitBody,
    RecoverBody,
    RouteBody,
    RulesBody,
)
from antiphon.core.record.op import Op
from antiphon.core.ucan import Delegation
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.testing.host_clock import HostClock
from simulator.actors.machines import Machine
from simulator.actors.workload import KINDS, LABEL
from simulator.cluster import Cluster

RULES: Final = Rules(
    authority="open",
    lease_ms=10_000,
    lease_ms_max=40_000,
    lease_max_ms=40_000,
    attempts=4,
    retry_after_max_ms=60_000,
    offer_after_ms=5_000,
    yields_max=12,
    limits=(Limit(label=LABEL, at_once=2),),
)
"""Short leases, so that an hour holds many of their ends."""
DRAWN: Final = (("build", "rendezvous"), ("fetch", "rendezvous"))
"""What workers draw for in some worlds; the other kinds stay with the engine's queues."""
PAUSE_S: Final = 2.0
LONGEST_PAUSE_S: Final = 15.0
IN_VAIN: Final = frozenset({"not_owner", "no_chain", "proof"})
"""Verdicts on a control op that writing it again does not change."""


class Scribe(Machine):
    """Writes control ops, one after the other."""

    def __init__(
        self, cluster: Cluster, name: str, *, clock: HostClock, rules: Rules = RULES
    ) -> None:
        """Nothing to write yet."""
        super().__init__(cluster, name, clock=clock)
        self._rules = rules
        self._changes: deque[Intent] = deque()
        self._wake = asyncio.Event()
        self.is_idle = True

    # --- what there is to write -------------------------------------------------------------

    def route(self, kind: str, target: str | None) -> None:
        """Let only one node claim a kind, or everybody again."""
        self._push(MeshRoute, RouteBody(kind=kind, target=target))

    def pause(self, kind: str, *, is_paused: bool = True) -> None:
        """Let nobody begin jobs of a kind, or everybody again."""
        self._push(MeshPause, PauseBody(kind=kind, is_paused=is_paused))

    def rule(self, attempts: int) -> None:
        """Change what a job gets that does not say how often it may be tried."""
        rules = replace(self._rules, attempts=attempts)
        self._push(MeshRules, RulesBody(rules=rules))

    def coordinate(self, node: str) -> None:
        """Name who seals."""
        self._push(MeshCoordinator, CoordinatorBody(node=node))

    def clear_routes(self) -> None:
        """Let everybody claim everything again."""
        for kind in KINDS:
            self.route(kind, None)
            self.pause(kind, is_paused=False)

    def bring(self, delegation: Delegation) -> None:
        """Put a delegation on the log."""
        body = DelegateBody(token=token_of(delegation.raw))
        self._push(UcanDelegate, body)

    def revoke(self, cid: str) -> None:
        """Take a delegation back."""
        self._push(UcanRevoke, RevokeBody(cid=cid))

    def show(self, node: str, first: str, second: str) -> None:
        """Show that somebody signed two ops with one timestamp."""
        body = EvidenceBody(node=node, first=first, second=second)
        self._push(MeshEvidence, body)

    def readmit(self, node: str) -> None:
        """End a quarantine."""
        self._push(MeshReadmit, ReadmitBody(node=node))

    def recover(self, heir: str) -> None:
        """Use the recovery key; the heir's is the next one too."""
        self._push(MeshRecover, RecoverBody(owner=heir, recovery=heir))

    def _push(self, op: type[Op], body: Struct) -> None:
        self.is_idle = False
        self._changes.append(Intent(op, body))
        self._wake.set()

    # --- writing it -------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is to be written, again until the rules have said what counts."""
        session = self.connect()
        await session.sync_control()
        while True:
            pause_s = PAUSE_S
            while self._changes:
                change = self._changes[0]
                if await self._is_settled(session, change):
                    self._changes.popleft()
                    pause_s = PAUSE_S
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self.is_idle = True
            self._wake.clear()
            await self._wake.wait()

    async def _is_settled(self, session: Session, change: Intent) -> bool:
        try:
            await session.sync_control()
            await write_one(session, change)
        except (Conflict, Unavailable):
            return False
        except Rejected as refused:
            return refused.reason in IN_VAIN
        return True
