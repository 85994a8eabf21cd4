"""Pauses: which jobs nobody may begin, and how that is written (docs/do/queries.md).

Who holds a job goes on: renewals and completions pass. Times to start by count on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antiphon.core.authority.control import Pause
from antiphon.core.families.mesh.ops import MeshPause, PauseBody, paused_words
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.caller.pause_words import described, resumed_by
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.sdk.authority.governance import Changed
from antiphon.sdk.authority.holdings import who

if TYPE_CHECKING:
    from antiphon.sdk.connection.connection import Connection


def body_of(
    *, is_paused: bool, kind: str = "", label: str = "", plan: str = "", reason: str = ""
) -> PauseBody:
    """What is written; `Malformed` if a kind, label or plan cannot be called so."""
    said = {"is_paused": is_paused, "reason": reason}
    said |= {
        name: value for name, value in (("kind", kind), ("label", label), ("plan", plan)) if value
    }
    try:
        return msgspec.convert(said, PauseBody)
    except msgspec.ValidationError as problem:
        raise Malformed(f"this cannot be paused: {problem}", reason="pause") from None


async def set_pause(connection: Connection, body: PauseBody) -> Changed:
    """Write it, if it changes anything; `Rejected` for others than the owner and coordinator."""
    held = await who(connection)
    if held.me not in (held.owner, held.coordinator):
        raise Rejected(
            "only the owner of this mesh, or its coordinator, may pause and resume jobs",
            reason="not_owner",
            hint="run it on the machine that has the owner's key",
        )
    before = paused(connection, body)
    seq = 0
    if (before is None) == body.is_paused:
        written = await write_one(connection.session, Intent(MeshPause, body), BEHIND)
        seq = written.seq
    words = paused_words(body.kind, body.label, body.plan)
    return Changed(
        before=words if before is not None else None,
        after=words if body.is_paused else None,
        seq=seq,
    )


def paused(connection: Connection, body: PauseBody) -> Pause | None:
    """The pause of exactly these jobs, if they are paused."""
    about = (body.kind, body.label, body.plan)
    pauses = connection.session.control.pauses
    return next((one for one in pauses if (one.kind, one.label, one.plan) == about), None)


__all__ = ["Pause", "body_of", "described", "paused", "resumed_by", "set_pause"]
