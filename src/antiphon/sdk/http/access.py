"""Who may ask a node over HTTP: its operator, and holders of delegations by a bar-bound token."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.job_rights import READ_BY, TEMPO_BY
from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.bar_tokens.bar_count import BarCount
from antiphon.core.bar_tokens.bar_token import (
    COMMANDS,
    Bearer,
    Refusal,
    check,
    member_of,
    still_holds,
)
from antiphon.core.bar_tokens.job_link import JobLink, check_link
from antiphon.core.ucan import TOP, covers
from antiphon.errors import Rejected
from antiphon.sdk.authority.acting import OWN, Acting
from antiphon.sdk.http.deliveries import Deliveries
from antiphon.sdk.http.node_api import NodeApi
from antiphon.sdk.http.node_view import NodeView
from antiphon.sdk.http.operator_token import OperatorToken, operator_token
from antiphon.sdk.http.tempo_admin import TempoAdmin
from antiphon.sdk.http.worker_view import WorkerView
from antiphon.sdk.webhooks.hook_file import FILE, HookFile

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from antiphon.core.tempo.meter import Beat, Meter
    from antiphon.runtime.node.full_node import FullNode
    from antiphon.runtime.worker.worker import Worker
    from antiphon.sdk.mesh import Mesh
    from antiphon.settings import Secret

OPERATOR: Final = Bearer(holder="operator", command=TOP, kinds=(EVERY_KIND,))
"""Whoever runs this node."""


def roles_for(commands: Collection[str]) -> list[str]:
    """The roles of tokens that are enough for one of these commands."""
    return [
        role
        for role, given in COMMANDS.items()
        if any(covers(given, command) for command in commands)
    ]


_WORDS: Final = {
    Refusal.MALFORMED: "this is not a token",
    Refusal.MESH: "this token is for another mesh",
    Refusal.SIGNATURE: "this token is not signed by its holder",
    Refusal.EARLY: "this token is from the future: the clocks of the two machines differ",
    Refusal.LATE: "this token's bars are over",
    Refusal.QUARANTINED: "the holder of this token is quarantined",
    Refusal.NO_CHAIN: "no delegations lead from the mesh's owner to the holder of this token",
    Refusal.ENDED: "a delegation of this token's holder was revoked, or is not valid now",
    Refusal.ROLE: "the holder's delegations do not grant the role of this token",
    Refusal.PROJECT: "the holder's delegations do not grant the project of this token",
}
_LINK_WORDS: Final = {
    Refusal.MALFORMED: "this is not a link",
    Refusal.LATE: "this link's time is over",
    Refusal.NO_CHAIN: "whoever made this link may not read the job",
    Refusal.ENDED: "whoever made this link may not read the job any more",
    Refusal.ROLE: "whoever made this link may not read the job",
    Refusal.PROJECT: "whoever made this link may not read the job",
}


class HttpAccess:
    """Judges tokens by a node's control state: a revocation counts once the node has read it."""

    def __init__(
        self,
        node: FullNode | Worker,
        operator: OperatorToken,
        meter: Callable[[], Meter] | None = None,
    ) -> None:
        """`meter` gives the one that is in force; None for the tempo policy's."""
        self._session = node.session
        self._operator = operator
        self._meter = meter or (lambda: node.session.control.tempo.meter)
        self._bars = BarCount.of(self._meter())
        self.own_key = ""
        """The key that signs for the node's operator: its links need no delegations."""

    def note_beat(self, _: Beat | None = None) -> None:
        """Remember the tempo in force: called on downbeats, where it may change."""
        self._bars = self._bars.noted(self._meter())

    def may_govern(self, bearer: Bearer) -> bool:
        """Whether it may change what only the owner can: the owner, or this machine's operator."""
        return bearer is OPERATOR or bearer.holder == self._session.control.owner

    def admit(self, token: str) -> Bearer:
        """Whose token it is and what it permits; `Rejected` if it is not valid."""
        if self._operator.matches(token):
            return OPERATOR
        self.note_beat()
        found = check(
            token,
            control=self._session.control,
            bars=self._bars,
            now_ms=self._session.wall.now_ms(),
        )
        if isinstance(found, Refusal):
            raise Rejected(
                _WORDS[found],
                reason=found,
                hint="make a new one: antiphon token --project '*' --role read",
            )
        return found

    def acting(self, bearer: Bearer) -> Acting:
        """For whom this node writes when this bearer has it write."""
        if bearer is OPERATOR:
            return OWN
        is_owner = bearer.holder == self._session.control.owner
        return Acting(
            party=bearer.party,
            key="" if is_owner else bearer.holder,
            auth=bearer.auth,
            command=bearer.command,
            kinds=bearer.kinds,
        )

    def still_holds(self, bearer: Bearer) -> bool:
        """Whether somebody who was admitted would be now, whatever became of the token's bars."""
        if bearer is OPERATOR or (bearer.holder == self.own_key and not bearer.auth):
            return True
        now_s = self._session.wall.now_ms() // 1000
        return still_holds(self._session.control, bearer, now_s)

    def admit_link(self, text: str) -> tuple[Bearer, JobLink]:
        """What a link opens, as the party that reads it; `Rejected` if it is not valid."""
        now_ms = self._session.wall.now_ms()
        own = self.own_key
        found = check_link(text, control=self._session.control, now_ms=now_ms, own=own)
        if isinstance(found, Refusal):
            raise Rejected(
                _LINK_WORDS.get(found, _WORDS[found]),
                reason=found,
                hint="ask whoever sent it for a new one: antiphon link JOB --for 2h",
            )
        control, auth = self._session.control, found.link.delegation
        is_own = found.signer in (own, control.owner)
        # A key signs as many links as it likes: together they have what one party has.
        member = found.signer if is_own else member_of(control, found.signer, auth)
        bearer = Bearer(
            holder=found.signer,
            command=COMMANDS["read"],
            kinds=(EVERY_KIND,) if is_own else (found.link.kind,),
            auth=() if is_own else auth,
            member=member,
            counted=f"links of {member}",
        )
        return bearer, found.link


@asynccontextmanager
async def open_to(
    mesh: Mesh, node: FullNode, given: Secret | None
) -> AsyncIterator[tuple[NodeView, HttpAccess, TempoAdmin, Deliveries, NodeApi]]:
    """What an HTTP interface of this node needs, while the block runs.

    `given` is the operator's token; None for the state directory's, made if there is none.
    """
    secret = given.value if given is not None else None
    operator = operator_token(mesh.home.path, secret)
    # The mesh's clock, and not the node's own: one that sends beats does not hear them.
    access = HttpAccess(node, operator, mesh.connection.clock.meter)
    access.own_key = mesh.connection.did
    deliveries = Deliveries(node.session)
    api = NodeApi(mesh, node, HookFile(mesh.home.path / FILE))
    async with mesh.connection.clock.calling(access.note_beat, only_downbeats=True):
        try:
            view = NodeView(node, mesh.connection.tempo_metrics, mesh.home.path)
            yield view, access, TempoAdmin(mesh), deliveries, api
        finally:
            await deliveries.close()
            await api.members.close()


@asynccontextmanager
async def open_worker_to(
    mesh: Mesh, worker: Worker, given: Secret | None
) -> AsyncIterator[tuple[WorkerView, HttpAccess]]:
    """The same for a worker."""
    secret = given.value if given is not None else None
    access = HttpAccess(worker, operator_token(mesh.home.path, secret), mesh.connection.clock.meter)
    async with mesh.connection.clock.calling(access.note_beat, only_downbeats=True):
        yield WorkerView(worker), access


__all__ = [
    "OPERATOR",
    "READ_BY",
    "TEMPO_BY",
    "Bearer",
    "HttpAccess",
    "JobLink",
    "open_to",
    "open_worker_to",
    "roles_for",
]
