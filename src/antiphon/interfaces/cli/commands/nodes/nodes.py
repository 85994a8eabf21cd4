"""`antiphon nodes`: which nodes are online, who came and went, and who agreed with whom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

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
from antiphon.interfaces.cli.screen.terminal import Piece, err, moment, out
from antiphon.sdk.defaults import ROLL_CALL_S, STALE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.sdk.agents.presence_methods import KeptChange, LiveNode
    from antiphon.sdk.authority.quorum_record import PartyRecord

_STYLES: Final = {"warn": "running", "alert": "failed", "critical": "failed", "dead": "failed"}


def nodes(
    *,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            parser=some_seconds,
            metavar="TIME",
            help="How long to wait for answers if no full node answers for all.",
        ),
    ] = ROLL_CALL_S,
    stale: Annotated[
        float,
        typer.Option(
            "--stale",
            parser=some_seconds,
            metavar="TIME",
            help="Leave out nodes whose last heartbeat is older.",
        ),
    ] = STALE_MS / 1000,
    changes: Annotated[
        bool,
        typer.Option(
            "--changes",
            help="Show which nodes came, fell silent and left, as this machine's full node saw it.",
        ),
    ] = False,
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
    if changes:
        return command_loop.run(_changes(home, as_json=as_json))
    return command_loop.run(_nodes(home, wait, round(stale * 1000), as_json=as_json))


async def _nodes(home: Path | None, wait_s: float, stale_ms: int, *, as_json: bool) -> int:
    from antiphon.sdk.authority.delegation import stuck_routes, who

    mesh = open_mesh(home)
    async with mesh:
        found = await mesh.live_nodes(stale_ms, wait_s=wait_s)
        stuck = [] if as_json else stuck_routes(await who(mesh))
    if as_json:
        print_json({"nodes": [_node_object(one) for one in found]})
        return Exit.OK
    if not found:
        out.say("no node is online")
        err.say("  try: ", "antiphon worker MODULE, or antiphon node")
    else:
        _print_table(found)
    for one in stuck:
        err.say("! ", one.words)
        err.say("  try: ", one.hint)
    return Exit.OK


def _print_table(found: list[LiveNode]) -> None:
    heads = ("ALIAS", "ROLE", "AGENT", "STATE", "BUSY", "DONE", "VERSION", "ID", "KINDS")
    out.table(heads, map(_row, found), flexible=8, wraps=True)


async def _changes(home: Path | None, *, as_json: bool) -> int:
    async with open_mesh(home) as mesh:
        kept = await mesh.presence_changes()
    if as_json:
        print_json({"changes": [_change_object(one) for one in kept]})
        return Exit.OK
    if not kept:
        out.say("no node came or went while a full node ran on this machine")
        err.say("  try: ", "antiphon node, and then again; or antiphon nodes")
        return Exit.OK
    heads = ("WHEN", "ALIAS", "AGENT", "WAS", "IS", "MISSED", "ID")
    out.table(heads, map(_change_row, kept), flexible=1, wraps=True)
    return Exit.OK


def _change_row(one: KeptChange) -> list[Piece]:
    change = one.change
    return [
        (moment(one.at_ms), "quiet"),
        (change.alias, "strong"),
        (change.agent, ""),
        (change.was, "quiet"),
        (change.level, _STYLES.get(change.level, "")),
        (f"{change.misses}" if change.misses else "", ""),
        (short_node(change.node), "quiet"),
    ]


def _change_object(one: KeptChange) -> dict[str, object]:
    change = one.change
    return {
        "at_ms": one.at_ms,
        "node": change.node,
        "alias": change.alias,
        "agent": change.agent,
        "role": change.role,
        "was": change.was,
        "level": change.level,
        "misses": change.misses,
    }


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


def _row(one: LiveNode) -> list[Piece]:
    card = one.card
    is_worker = card.role == "worker"
    what = f"(follows everything, at record {card.applied:,})" if card.role == "node" else ""
    return [
        (card.alias, "strong"),
        (card.role, ""),
        (card.agent, ""),
        (one.level, _STYLES.get(one.level, "")),
        (f"{card.busy}/{card.slots}" if is_worker else "", "running" if card.busy else ""),
        (f"{card.done:,}" if is_worker else "", ""),
        (card.version, "quiet"),
        (short_node(card.node), "quiet"),
        (", ".join(card.kinds) or what, ""),
    ]


def _node_object(one: LiveNode) -> dict[str, object]:
    card = one.card
    return {
        "alias": card.alias,
        "role": card.role,
        "agent": card.agent,
        "level": one.level,
        "misses": one.misses,
        "silent_ms": one.silent_ms,
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
