"""The gate's roll call service: forwards what members ask of all nodes, at a limited rate.

Every node receives a roll call, and the server does not limit publishers: a member that could
start roll calls by itself could keep all other nodes busy. So it asks the gate, on
`apg.<mesh>.<user>.roll`, and awaits the answers in its own inbox like every other node. Questions
where a lane can be entered go the same way, if the member may read that lane.

The gate itself says something only if it does not pass a call on: why, in words, to the connection
that asked. That one logs it (`connection/bus.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from antiphon.core.authority.scope import Scope
from antiphon.core.bus.subjects import INBOX, ROLL, BusSubject
from antiphon.core.record.branches import Branch
from antiphon.core.record.subjects import matches
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.nats.connection.bus import NatsBus, reply_in
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.gate.request_guard import Limits, MemberRequest, Service
from antiphon.errors import Malformed, Rejected

LIMITS: Final = Limits(
    room="calls", heard=16, of_party=4, in_all=16, request_bytes=256, seconds=10.0
)
"""Of each sort of call; the longest is the subject of a lane."""

Admits = Callable[[str, bytes], bool]
"""Whether what this user asks is passed on."""


def roll_call_service(
    connection: Connection,
    mesh: str,
    *,
    asks: BusSubject = ROLL,
    admits: Admits = lambda _user, _payload: True,
) -> Service:
    """Passes calls on to the bus, over a connection with all permissions."""
    bus = NatsBus(connection, mesh)

    async def answer(asked: MemberRequest) -> None:
        reply = reply_in(asked.header) if asked.header else ""
        if not matches(INBOX.at(user=asked.user, place=">"), reply):
            raise Malformed("its answers would not go to the asker's own inbox", reason="reply")
        if not admits(asked.user, asked.payload):
            raise Rejected("this machine may not read what it asks for", reason="policy")
        await bus.publish(asks.at(), asked.payload, reply=reply)

    return Service(
        verbs=(asks.at(),),
        answer=answer,
        told=lambda error: error.message.encode(),
        limits=replace(LIMITS, room=f"calls of {asks.at()}"),
        is_silent=True,
    )


def admits_readers(
    mesh: str, branches: tuple[Branch, ...], scope_of: Callable[[str], Scope]
) -> Admits:
    """Passes on a call whose payload is a subject that its user may read."""

    def admits(user: str, payload: bytes) -> bool:
        return sight_of(mesh, branches, scope_of(user)).sees(payload.decode(errors="replace"))

    return admits
