"""`antiphon nodes`: which nodes are online."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short_node,
)
from antiphon.interfaces.cli.screen.terminal import Piece, err, out
from antiphon.sdk.defaults import ROLL_CALL_S

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Card


def nodes(
    *,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", parser=some_seconds, metavar="TIME", help="How long to wait for answers."
        ),
    ] = ROLL_CALL_S,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the nodes that are online."""
    return command_loop.run(_nodes(home, wait, as_json=as_json))


async def _nodes(home: Path | None, wait_s: float, *, as_json: bool) -> int:
    mesh = open_mesh(home)
    async with mesh:
        cards = await mesh.nodes(wait_s=wait_s)
    if as_json:
        print_json({"nodes": [_card_object(card) for card in cards]})
        return Exit.OK
    if not cards:
        out.say("no node is online")
        err.say("  try: ", "antiphon worker MODULE, or antiphon node")
        return Exit.OK
    heads = ("ALIAS", "ROLE", "BUSY", "DONE", "VERSION", "ID", "KINDS")
    out.table(heads, map(_row, cards), flexible=6, wraps=True)
    return Exit.OK


def _row(card: Card) -> list[Piece]:
    is_worker = card.role == "worker"
    return [
        (card.alias, "strong"),
        (card.role, ""),
        (f"{card.busy}/{card.slots}" if is_worker else "", "running" if card.busy else ""),
        (f"{card.done:,}" if is_worker else "", ""),
        (card.version, "quiet"),
        (short_node(card.node), "quiet"),
        (", ".join(card.kinds) or f"(follows everything, at record {card.applied:,})", ""),
    ]


def _card_object(card: Card) -> dict[str, object]:
    return {
        "alias": card.alias,
        "role": card.role,
        "node": card.node,
        "kinds": list(card.kinds),
        "labels": list(card.labels),
        "weight": card.weight,
        "slots": card.slots,
        "busy": card.busy,
        "done": card.done,
        "applied": card.applied,
        "version": card.version,
    }
