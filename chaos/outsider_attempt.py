"""What an attempt of the outsider's is, and what can come of it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from msgspec import Struct

from chaos.outsider_scene import Breach, Scene

Wall = Literal["server", "gate", "rules", "harmless"]
REFUSALS: Final[tuple[Wall, ...]] = ("server", "gate")
"""Where nothing came in. What the rules reject lies on the log, without effect."""


class Held(Struct, frozen=True):
    """Which wall held, or why nobody was harmed."""

    wall: Wall
    why: str


class Attempt(Struct, frozen=True):
    """One thing that the outsider tries; `Breach` if it comes through."""

    name: str
    act: Callable[[Scene], Awaitable[Held]]


DENIED: Final = Held("server", "no permission")


def invented() -> str:
    """The id of a job that does not exist: the outsider knows no other."""
    return os.urandom(32).hex()


def placed(text: str, scene: Scene) -> str:
    """A subject with the scene's names in it."""
    victim = scene.victim.access()
    names = {
        "<m>": scene.mesh,
        "<stream>": scene.line.stream,
        "<me>": scene.line.user,
        "<victim>": victim.user,
        "<door>": victim.door,
        "<id>": invented(),
    }
    for name, meant in names.items():
        text = text.replace(name, meant)
    return text


def publishing(name: str, subject: str, payload: bytes = b"{}") -> Attempt:
    """Publishing where the server must not let it."""

    async def act(scene: Scene) -> Held:
        where = placed(subject, scene)
        body = placed(payload.decode(), scene).encode()
        if await scene.line.is_refused(where, body, reply=f"{scene.line.inbox}.x"):
            return DENIED
        raise Breach(f"the server took a message on {where}")

    return Attempt(name, act)


def listening(name: str, pattern: str, queue: str = "") -> Attempt:
    """Subscribing where the server must not let it."""

    async def act(scene: Scene) -> Held:
        where = placed(pattern, scene)
        if await scene.line.listen(where, queue) is None:
            return DENIED
        raise Breach(f"the server let it listen on {where}")

    return Attempt(name, act)
