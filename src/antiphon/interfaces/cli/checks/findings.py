"""What a check says, and what it may look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from antiphon.interfaces.cli.screen.node_names import NodeName

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Card, Mesh

Level = Literal["ok", "warning", "wrong"]


class Finding(NamedTuple):
    """The result of one check, as a sentence."""

    level: Level
    check: str
    sentence: str
    hint: str = ""


def ok(check: str, sentence: str) -> Finding:
    """All is well."""
    return Finding("ok", check, sentence)


def warning(check: str, sentence: str, hint: str = "") -> Finding:
    """It works, and somebody should know this."""
    return Finding("warning", check, sentence, hint)


def wrong(check: str, sentence: str, hint: str = "") -> Finding:
    """It does not work."""
    return Finding("wrong", check, sentence, hint)


class Look(NamedTuple):
    """An open mesh, and the nodes that answer a roll call, which is under way."""

    mesh: Mesh
    calling: asyncio.Future[list[Card]]

    async def names(self) -> NodeName:
        """How nodes are called in sentences: by their aliases."""
        held = await self.mesh.authority.who()
        if held.authority != "open":
            return held.name
        aliases = {card.node: card.alias for card in await self.calling}  # nothing is granted there
        return lambda did: aliases.get(did) or held.name(did)


Check = Callable[[Look], AsyncIterator[Finding]]
