"""Who has which permissions on a mesh, as one process knows it, and what follows for routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.grant_reach import State
from antiphon.core.authority.grant_tree import GrantTree, trace
from antiphon.core.authority.scope import admits, filter_of
from antiphon.core.families.jobs.ops import JobClaim
from antiphon.core.record import subjects
from antiphon.core.record.ids import short_node
from antiphon.core.ucan import covers

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

OWNER: Final = "owner"
CLAIM: Final = JobClaim.COMMAND


class Holdings(Struct, frozen=True, kw_only=True):
    """All permissions on a mesh at one moment."""

    mesh: str
    owner: str
    coordinator: str
    authority: str
    """`chain` or `open`: whether any of them is needed."""
    routes: dict[str, str]
    quarantined: tuple[str, ...]
    me: str
    """The key that asked."""
    tree: GrantTree
    now_s: int

    def called(self, did: str) -> str:
        """A node as people see it: its alias, if it has one, and the end of its id."""
        name = self.name(did)
        return name if name == short_node(did) else f"{name} {short_node(did)}"

    def name(self, did: str) -> str:
        """A node in the middle of a sentence: its alias, or else the end of its id."""
        alias = OWNER if did == self.owner else self.tree.names.get(did, "")
        return alias or short_node(did)


def holdings_of(session: Session, *, me: str = "") -> Holdings:
    """Who has which permissions from whom, by what this process has read already."""
    control, now_s = session.control, session.wall.now_ms() // 1000
    tree = trace(control, now_s)
    if control.rules.authority == "open":  # where nobody was delegated anything, with a name
        tree = replace(tree, names={**session.key_names(), **tree.names})
    return Holdings(
        mesh=control.mesh,
        owner=control.owner,
        coordinator=control.coordinator,
        authority=control.rules.authority,
        routes=dict(sorted(control.routes.items())),
        quarantined=tuple(control.quarantined),
        me=me or session.author.did,
        tree=tree,
        now_s=now_s,
    )


def may_claim(held: Holdings, node: str, kind: str) -> bool:
    """Whether a node may claim any of the jobs under a route on `kind`."""
    if held.authority == "open" or node == held.owner:
        return True
    filters = [
        filter_of(glob) or ""
        for one in held.tree.live_to(node)
        if one.is_powerline or covers(one.command, CLAIM)
        for glob in one.kinds
    ]
    return any(admits(one, kind) or one.startswith(kind + ".") for one in filters)


class StuckRoute(Struct, frozen=True, kw_only=True):
    """A route to a node that may not claim: its jobs wait until somebody changes that."""

    kind: str
    """The kind of the route."""
    words: str
    hint: str


def stuck_routes(held: Holdings) -> list[StuckRoute]:
    """Every route under which no job can be claimed."""
    found = (_stuck(held, kind, kind) for kind in held.routes)
    return [one for one in found if one is not None]


def stuck_route(held: Holdings, kind: str) -> StuckRoute | None:
    """The route that keeps every job of one kind from being claimed, if there is one."""
    routes = [one for one in held.routes if subjects.covers(one, kind)]
    return _stuck(held, max(routes, key=len), kind) if routes else None


def _stuck(held: Holdings, route: str, kind: str) -> StuckRoute | None:
    node = held.routes[route]
    why = "is quarantined" if node in held.quarantined and node != held.owner else ""
    if not why and may_claim(held, node, kind):
        return None
    if not why:
        given = [one for one in held.tree.grants() if one.audience == node]
        ends = {one.state for one in given if one.is_powerline or covers(one.command, CLAIM)}
        why = "has no permission to claim it"
        if State.REVOKED in ends:
            why = "was revoked"
        elif State.EXPIRED in ends:
            why = "had that permission until it expired"
    return StuckRoute(
        kind=route,
        words=f"{kind} is routed to {held.name(node)}, which {why}: nobody may claim it",
        hint=f"antiphon route {route} NODE, or antiphon route {route} --clear, as the owner",
    )
