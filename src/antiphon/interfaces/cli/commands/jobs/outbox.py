"""`antiphon outbox`: what waits on this machine until the mesh can be reached."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.errors import Unavailable
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import err
from antiphon.interfaces.cli.shared.outbox_words import item_object, say_items

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.outbox.namespace import LocalOutbox


class Action(StrEnum):
    """What to do with the outbox."""

    LIST = "list"
    SEND = "send"
    RETRY = "retry"
    DROP = "drop"


ActionArgument = Annotated[
    Action, typer.Argument(help="list; send what waits now; retry or drop an item.")
]
ItemArgument = Annotated[
    str,
    typer.Argument(
        metavar="[ITEM]",
        help="The beginning of an item's id, or of its job's or message's.",
        show_default=False,
    ),
]


@command
def outbox(
    home: Path | None,
    as_json: bool,
    action: ActionArgument = Action.LIST,
    item: ItemArgument = "",
) -> Answer | Coroutine[Any, Any, Answer]:
    """List what waits here for a connection, and what became of it.

    What ended is listed once. Items are sent by themselves as soon as a program or a command of
    this machine is connected; 'send' does it now.

    \b
      antiphon outbox
      antiphon outbox send
      antiphon outbox retry 3f9a
      antiphon outbox drop 3f9a
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.mesh import StateDirectory
    from antiphon.sdk.outbox.namespace import LocalOutbox

    if (action in (Action.RETRY, Action.DROP)) != bool(item):
        raise WrongUsage(
            f"'{action.value}' takes {'no' if item else 'an'} item",
            hint="antiphon outbox lists them; antiphon outbox drop ITEM",
        )
    found = LocalOutbox.of(StateDirectory.find(home))
    if action is Action.DROP:
        dropped = found.drop(item)
        return Answer({**item_object(dropped), "state": "removed"}, lambda: _say_removed(dropped))
    if action is Action.RETRY:
        found.retry(item)
    if action is Action.LIST:
        return _listed(found, as_json=as_json)
    return _sent(found, home, as_json=as_json)


def _say_removed(item: Any) -> None:
    err.say(f"removed: {item.what.words}")


async def _sent(found: LocalOutbox, home: Path | None, *, as_json: bool) -> Answer:
    code = Exit.OK
    try:
        async with open_mesh(home) as mesh:
            await mesh.outbox.send()
    except Unavailable as problem:
        err.say("not sent: ", problem.message)
        code = Exit.UNAVAILABLE
    return _listed(found, as_json=as_json)._replace(code=code)


def _listed(found: LocalOutbox, *, as_json: bool) -> Answer:
    """All items; what ended is told by this."""
    items = found.items()
    if as_json:
        found.told(items)

    def words() -> None:
        say_items(items)
        if not items:
            err.pieces(("nothing waits here", "quiet"))
        found.told(items)

    return Answer([item_object(one) for one in items], words)
