"""`mesh.authority`: who may do what, and the rules of the mesh (docs/do/who-may-do-what.md).

    print(await mesh.authority.who())
    await mesh.authority.grant("did:key:z6Mk…", Terms(can=("claim",), kinds=("render.*",)))

Routes, the coordinator, the rules and their limits are the owner's to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    MeshCoordinator,
    MeshRoute,
    MeshRules,
    RouteBody,
    RulesBody,
)
from antiphon.core.record.subjects import check_kind
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.sdk.authority import delegation, holdings, pauses
from antiphon.sdk.authority import limits as limit_rules
from antiphon.sdk.authority.governance import Changed, RulesChanged, changed_rules, rule_values
from antiphon.sdk.authority.holdings import find_node, require_owner
from antiphon.sdk.defaults import ROLL_CALL_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Struct

    from antiphon.core.authority.control import AnnouncedProtocol, Pause
    from antiphon.core.authority.grant_terms import Terms
    from antiphon.core.authority.rules import Rules
    from antiphon.core.derivations.party_record import PartyRecord
    from antiphon.core.policy.rate_limit import Rate
    from antiphon.core.record.op import Op
    from antiphon.runtime.caller.holdings import Holdings
    from antiphon.runtime.node.coordinator_watch import CoordinatorStatus
    from antiphon.sdk.authority.delegation import Granted, Revoked
    from antiphon.sdk.authority.limits import LimitStatus
    from antiphon.sdk.connection.connection import Connection


class Authority:
    """Permissions, routes, the coordinator and the rules of a mesh."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.authority`."""
        self._connection = connection

    # --- reading ------------------------------------------------------------------------------

    @property
    def rules(self) -> Rules:
        """The mesh's rules, as this process read them last."""
        return self._connection.session.control.rules

    @property
    def announced(self) -> AnnouncedProtocol | None:
        """The next protocol, and when it takes effect; None where none is announced."""
        return self._connection.session.control.rise

    async def who(self) -> Holdings:
        """Who has which permissions from whom, by everything that is on the log now."""
        return await holdings.who(self._connection)

    def revocable(self, held: Holdings, *, by: str) -> frozenset[str]:
        """The ids of the grants in force that this key (a did:key) could revoke."""
        return delegation.revocable(self._connection, held, by=by)

    async def coordinator(self, *, wait_s: float = ROLL_CALL_S) -> CoordinatorStatus:
        """The coordinator, and whether it is online right now."""
        from antiphon.runtime.node.coordinator_watch import ask_once

        async with self._connection.replica() as replica:
            return await ask_once(self._connection.session, replica, wait_s=wait_s)

    def route_for(self, kind: str) -> str | None:
        """The only node that may claim a kind, by the longest route; None where any worker may."""
        return self._connection.session.control.route_for(kind)

    async def limits(self, *, shown: int = limit_rules.WAITING_SHOWN) -> list[LimitStatus]:
        """Every limit and every label that is in use, by label, and the first jobs that wait."""
        async with self._connection.replica() as replica:
            return limit_rules.limits(self._connection.session, replica, shown=shown)

    async def quorum_record(self) -> list[PartyRecord]:
        """Who agreed with whom in jobs that ran several times; who disagreed most comes first."""
        from antiphon.sdk.authority.quorum_record import quorum_record

        return await quorum_record(self._connection)

    # --- permissions --------------------------------------------------------------------------

    async def grant(self, to: str, wanted: Terms) -> Granted:
        """Grant a permission: as the owner, or as a node that has it and may delegate it."""
        return await delegation.grant(self._connection, to, wanted)

    async def revoke(self, *targets: str) -> Revoked:
        """Revoke grants by id, or everything that this key granted to a node.

        A grant that cannot be revoked does not stop the rest: `Conflict` is raised at the end and
        names it.
        """
        return await delegation.revoke(self._connection, *targets)

    # --- the owner's --------------------------------------------------------------------------

    async def set_route(self, kind: str, to: str | None) -> Changed:
        """Let only one node claim a kind and everything below it; None removes the route."""
        held = await self.who()
        require_owner(held, "set routes")
        node = None if to is None else find_node(held, to)
        before = held.routes.get(check_kind(kind))
        seq = 0
        if before != node:
            seq = await self._write(MeshRoute, RouteBody(kind=kind, target=node))
        return Changed(before=before, after=node, seq=seq)

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """What nobody may begin now, oldest first."""
        return self._connection.session.control.pauses

    async def pause(
        self, *, kind: str = "", label: str = "", plan: str = "", reason: str = ""
    ) -> Changed:
        """Let nobody begin jobs that have all of what is given; without anything, no job at all.

        Jobs that are held go on. The owner and the coordinator may do this.
        """
        body = pauses.body_of(is_paused=True, kind=kind, label=label, plan=plan, reason=reason)
        return await pauses.set_pause(self._connection, body)

    async def resume(self, *, kind: str = "", label: str = "", plan: str = "") -> Changed:
        """End the pause that was made with the same words."""
        body = pauses.body_of(is_paused=False, kind=kind, label=label, plan=plan)
        return await pauses.set_pause(self._connection, body)

    async def set_coordinator(self, node: str) -> Changed:
        """Designate the one node that offers waiting jobs and writes derivations."""
        held = await self.who()
        require_owner(held, "designate a coordinator")
        did, seq = find_node(held, node), 0
        if did != held.coordinator:
            seq = await self._write(MeshCoordinator, CoordinatorBody(node=did))
        return Changed(before=held.coordinator, after=did, seq=seq)

    async def set_rules(self, changes: Mapping[str, object]) -> RulesChanged:
        """Change some rules from here on; the others stay as they are."""
        held, session = await self.who(), self._connection.session
        require_owner(held, "change the rules")
        before, seq = session.control.rules, 0
        after = changed_rules(before, changes, newest=session.protocol.number)
        if after != before:
            seq = await self._write(MeshRules, RulesBody(rules=after))
        return RulesChanged(before=rule_values(before), after=rule_values(after), seq=seq)

    async def set_limit(
        self,
        label: str,
        *,
        at_once: int | None = None,
        rate: Rate | None = None,
        kinds: Sequence[str] = (),
    ) -> RulesChanged:
        """Limit the jobs with a label from here on; kinds that are named must carry it."""
        wanted = limit_rules.with_limit(self.rules, label, at_once=at_once, rate=rate, kinds=kinds)
        return await self.set_rules({"limits": wanted})

    async def remove_limit(self, label: str) -> RulesChanged:
        """End a limit; `Rejected` if there is none with this label."""
        return await self.set_rules({"limits": limit_rules.without_limit(self.rules, label)})

    async def _write(self, op: type[Op], body: Struct) -> int:
        return (await write_one(self._connection.session, Intent(op, body), BEHIND)).seq
