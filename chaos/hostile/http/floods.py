"""What a member with one right does over HTTP, by a name for the report.

`docs/understand/chaos.md` has the table of routes by right. `everything` of a right is all of it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from antiphon.errors import AntiphonError
from chaos.hostile.http.anybody import Strangers
from chaos.hostile.http.signed import SignedAttacks
from chaos.hostile.http.tokens import TokenAttacks
from chaos.network.http_wire import Wire

AT_ONCE: Final = 32
CONNECTIONS: Final = 160
"""More than a node has."""
BACK_S: Final = 0.01
"""How long it waits after an error of its connection."""


class Attacks(TokenAttacks, SignedAttacks, Strangers):
    """Everything that a member does over HTTP."""


Step = Callable[[Any, Wire], Awaitable[None]]
"""A method of `Attacks`: one thing on one connection, done again and again on many."""


class Flood(Struct, frozen=True):
    """Steps, and on how many connections they are done."""

    steps: tuple[Step, ...]
    at_once: int = AT_ONCE


_LOG: Final = {"log": Flood((SignedAttacks.ask_log, SignedAttacks.end, SignedAttacks.lane))}
_RECORDS: Final = {"records": Flood((SignedAttacks.junk_record,))}
_OFFERS: Final = {"offers": Flood((SignedAttacks.offers,))}
_LISTS: Final = {"lists": Flood((TokenAttacks.list,)), "counts": Flood((TokenAttacks.count,))}
_READING: Final = {
    **_LISTS,
    "bundle checks": Flood((TokenAttacks.bundle_check, TokenAttacks.junk_check)),
    "streams": Flood((TokenAttacks.story, TokenAttacks.printed)),
    "downloads": Flood((TokenAttacks.download,)),
    **_LOG,
}
_ANYBODY: Final = {
    "strangers": Flood((Strangers.next_request,)),
    "one document": Flood((Strangers.document, Strangers.probe), CONNECTIONS // 2),
    "connections": Flood(
        (
            Strangers.come_again,
            Strangers.say_nothing,
            Strangers.say_half,
            Strangers.read_nothing,
        ),
        CONNECTIONS,
    ),
}
WHOLE_MESH: Final = "whole mesh"
"""What the right allows at the engine, through `Mesh.connect`: the client knows it."""
FLOODS: Final[dict[str, dict[str, Flood]]] = {
    "claim": {**_READING, **_OFFERS, **_RECORDS, **_ANYBODY},
    "schedule": {
        "large jobs": Flood((TokenAttacks.submit,)),
        "jobs": Flood((TokenAttacks.submit_small, TokenAttacks.retry, TokenAttacks.submit_nested)),
        **_LISTS,
        **_LOG,
        **_RECORDS,
        **_ANYBODY,
    },
    "read": {**_READING, **_ANYBODY},
    "answer": {
        "answers": Flood((TokenAttacks.answer, TokenAttacks.question)),
        **_READING,
        **_RECORDS,
        **_ANYBODY,
    },
    "message": {
        "messages": Flood((TokenAttacks.send,)),
        "letters": Flood((SignedAttacks.letter,)),
        "inboxes": Flood((TokenAttacks.take, TokenAttacks.threads)),
        **_LOG,
        **_ANYBODY,
    },
    "lock": {**_LOG, **_OFFERS, **_RECORDS, **_ANYBODY},
    "memory": {**_LOG, **_OFFERS, **_RECORDS, **_ANYBODY},
}
HAS_WHOLE_MESH: Final = ("claim", "schedule", "answer", "lock", "memory")
"""Rights that are used by records: there is no gate for messages over HTTP."""


def floods_of(right: str) -> tuple[str, ...]:
    """What a member with this right does: one thing after the other, and then all at once."""
    records = (WHOLE_MESH,) if right in HAS_WHOLE_MESH else ()
    return (*FLOODS[right], *records, "everything")


def flood_of(right: str, name: str) -> Flood:
    """One of them; `everything` is all of them together."""
    if name != "everything":
        return FLOODS[right][name]
    steps = tuple(step for one in FLOODS[right].values() for step in one.steps)
    return Flood(steps, CONNECTIONS)


async def repeat(flood: Flood, attacks: Attacks) -> None:
    """Do all steps of a flood without a pause, until this is cancelled."""

    async def one_after_another(number: int) -> None:
        wire, first = attacks.member.wire(), number % len(flood.steps)
        steps = itertools.cycle((*flood.steps[first:], *flood.steps[:first]))
        try:
            for step in steps:
                try:
                    await step(attacks, wire)
                except (OSError, TimeoutError, AntiphonError, ValueError):
                    wire.close()
                    await asyncio.sleep(BACK_S)
                await asyncio.sleep(0)
        finally:
            wire.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(flood.at_once):
            tasks.create_task(one_after_another(number))
