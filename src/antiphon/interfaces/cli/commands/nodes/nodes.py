"""`antiphon nodes`: which nodes are online, and with `--record` who agreed with whom."""

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
    from collections.abc import Callable

    from antiphon.sdk.authority.quorum_record import PartyRecord
    from antiphon.sdk.mesh import Card


def nodes(
    *,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", parser=some_seconds, metavar="TIME", help="How long to wait for answers."
        ),
    ] = ROLL_CALL_S,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="Show instead who ran replicas of jobs, and whose results were outvoted.",
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the nodes that are online."""
    if record:
        return command_loop.run(_record(home, as_json=as_json))
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


async def _record(home: Path | None, *, as_json: bool) -> int:
    from antiphon.sdk.authority.holdings import who
    from antiphon.sdk.authority.quorum_record import quorum_record

    async with open_mesh(home) as mesh:
        records = await quorum_record(mesh)
        called = (await who(mesh)).called
    if as_json:
        print_json({"record": [_record_object(one, called(one.party)) for one in records]})
        return Exit.OK
    if not records:
        out.say("no job was run as replicas yet")
        err.say("  try: ", "antiphon submit KIND ARGS --replicas 3 --quorum 2")
        return Exit.OK
    heads = ("NODE", "DONE", "AGREED", "DISAGREED", "UNDECIDED", "FAILED", "WITH")
    out.table(heads, (_record_row(one, called) for one in records), flexible=6, wraps=True)
    return Exit.OK


def _record_row(one: PartyRecord, called: Callable[[str], str]) -> list[Piece]:
    against = (f"{called(other)} ({times})" for other, times in one.against.most_common())
    return [
        (called(one.party), "strong"),
        (f"{one.done:,}", ""),
        (f"{one.agreed:,}", ""),
        (f"{one.disagreed:,}", "failed" if one.disagreed else ""),
        (f"{one.undecided:,}", ""),
        (f"{one.failed:,}", ""),
        (", ".join(against), ""),
    ]


def _record_object(one: PartyRecord, name: str) -> dict[str, object]:
    return {
        "node": one.party,
        "name": name,
        "done": one.done,
        "agreed": one.agreed,
        "disagreed": one.disagreed,
        "undecided": one.undecided,
        "failed": one.failed,
        "with": dict(one.against.most_common()),
        "jobs": [{"kind": kind, "job": job} for kind, job in one.jobs],
    }


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
