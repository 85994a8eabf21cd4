"""What an attempt of the outsider is, and its possible outcomes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from msgspec import Struct

from chaos.outsider.target import Breach, TargetMesh

StoppedBy = Literal["server", "gate", "door", "rules", "harmless"]
REFUSALS: Final[tuple[StoppedBy, ...]] = ("server", "gate", "door")
"""Where nothing was stored. What the rules reject is on the log, without effect."""


class Outcome(Struct, frozen=True):
    """Which wall stopped an attempt, or why it harms nobody."""

    wall: StoppedBy
    why: str


class Attempt(Struct, frozen=True):
    """One thing that the outsider tries; raises `Breach` if it succeeds."""

    name: str
    act: Callable[[TargetMesh], Awaitable[Outcome]]


DENIED: Final = Outcome("server", "no permission")


def unknown_job() -> str:
    """The id of a job that does not exist; the outsider knows no others."""
    return os.urandom(32).hex()


def fill_in(text: str, target: TargetMesh) -> str:
    """A text with the target's names in place of `<m>`, `<victim>` and so on."""
    victim = target.victim.access()
    names = {
        "<m>": target.mesh,
        "<stream>": target.connection.stream,
        "<me>": target.connection.user,
        "<victim>": victim.user,
        "<refresh>": victim.refresh_key,
        "<id>": unknown_job(),
    }
    for name, meant in names.items():
        text = text.replace(name, meant)
    return text


def publish_attempt(name: str, subject: str, payload: bytes = b"{}") -> Attempt:
    """An attempt to publish where the server must refuse it."""

    async def act(target: TargetMesh) -> Outcome:
        where = fill_in(subject, target)
        body = fill_in(payload.decode(), target).encode()
        if await target.connection.is_refused(where, body, reply=f"{target.connection.inbox}.x"):
            return DENIED
        raise Breach(f"the server took a message on {where}")

    return Attempt(name, act)


def subscribe_attempt(name: str, pattern: str, queue: str = "") -> Attempt:
    """An attempt to subscribe where the server must refuse it."""

    async def act(target: TargetMesh) -> Outcome:
        where = fill_in(pattern, target)
        if await target.connection.listen(where, queue) is None:
            return DENIED
        raise Breach(f"the server let it listen on {where}")

    return Attempt(name, act)
