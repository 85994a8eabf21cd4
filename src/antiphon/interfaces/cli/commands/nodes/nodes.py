"""`antiphon nodes`: which nodes are online, who came and went, and who agreed with whom."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.options import short_node
from antiphon.interfaces.cli.screen.terminal import Piece, ago, err, moment, out
from antiphon.sdk.defaults import ROLL_CALL_S, STALE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.sdk.authority.quorum_record import PartyRecord
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.presence.namespace import KeptChange, LiveNode

_STYLES: Final = {"warn": "running", "alert": "failed", "critical": "failed", "dead": "failed"}


@command
async def nodes(
    mesh: Mesh,
    *,
    wait: float = typer.Option(
        ROLL_CALL_S,
        parser=some_seconds,
        metavar="TIME",
        help="How long to wait for answers if no full node answers for all.",
    ),
    stale: float = typer.Option(
        STALE_MS / 1000,
        parser=some_seconds,
        metavar="TIME",
        help="Who was not heard for longer is not online.",
    ),
    changes: bool = typer.Option(
        False,
        "--changes",
        help="Show which nodes came, fell silent and left, as this machine's full node saw it.",
    ),
    record: bool = typer.Option(
        False,
        "--record",
        help="Show instead who ran replicas of jobs, and whose results were outvoted.",
    ),
) -> Answer:
    """List the nodes that are online, and those that died.

    A node that is stopped says goodbye and is not listed any more. One that was killed or cut off
    is listed as dead until it comes back, a day is over, or 'antiphon dismiss --node' takes it off.
    """
    if record:
        return await _record(mesh)
    if changes:
        return await _changes(mesh)
    from antiphon.sdk.authority.delegation import stuck_routes

    found, dead = await mesh.presence.live_and_dead(round(stale * 1000), wait_s=wait)
    stuck = stuck_routes(await mesh.authority.who())

    def words() -> None:
        if found:
            heads = ("ALIAS", "ROLE", "AGENT", "STATE", "BUSY", "DONE", "VERSION", "ID", "KINDS")
            out.table(heads, map(_row, found), flexible=8, wraps=True)
        else:
            out.say("no node is online")
            err.say("  try: ", "antiphon worker MODULE, or antiphon node")
        if dead:
            out.say("")
            of_dead = ("ALIAS", "ROLE", "STATE", "LAST HEARD", "ID", "KINDS")
            out.table(of_dead, map(_dead_row, dead), flexible=5, wraps=True)
            err.say("  try: ", "antiphon dismiss --node ALIAS, if it is not coming back")
        for one in stuck:
            err.say("! ", one.words)
            err.say("  try: ", one.hint)

    return Answer({"nodes": [_node_object(one) for one in (*found, *dead)]}, words)


async def _changes(mesh: Mesh) -> Answer:
    kept = await mesh.presence.changes()

    def words() -> None:
        if kept:
            heads = ("WHEN", "ALIAS", "AGENT", "WAS", "IS", "MISSED", "ID")
            out.table(heads, map(_change_row, kept), flexible=1, wraps=True)
        else:
            out.say("no node came or went while a full node ran on this machine")
            err.say("  try: ", "antiphon node, and then again; or antiphon nodes")

    names = ("node", "alias", "agent", "role", "was", "level", "misses")
    return Answer(
        {"changes": [{"at_ms": one.at_ms, **fields(one.change, *names)} for one in kept]}, words
    )


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


async def _record(mesh: Mesh) -> Answer:

    records = await mesh.authority.quorum_record()
    called = (await mesh.authority.who()).called

    def words() -> None:
        if records:
            heads = ("NODE", "DONE", "AGREED", "DISAGREED", "UNDECIDED", "FAILED", "WITH")
            out.table(heads, (_record_row(one, called) for one in records), flexible=6, wraps=True)
        else:
            out.say("no job was run as replicas yet")
            err.say("  try: ", "antiphon submit KIND ARGS --replicas 3 --quorum 2")

    return Answer({"record": [_record_object(one, called(one.party)) for one in records]}, words)


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


def _record_object(one: PartyRecord, name: str) -> dict[str, Any]:
    return {
        "node": one.party,
        "name": name,
        **fields(one, "done", "agreed", "disagreed", "undecided", "failed"),
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


def _dead_row(one: LiveNode) -> list[Piece]:
    card, heard_ms = one.card, round(time.time() * 1000) - one.silent_ms
    return [
        (card.alias, "strong"),
        (card.role, ""),
        (one.level, _STYLES.get(one.level, "")),
        (f"{ago(heard_ms)}, {moment(heard_ms)}", "quiet"),
        (short_node(card.node), "quiet"),
        (", ".join(card.kinds), ""),
    ]


def _node_object(one: LiveNode) -> dict[str, Any]:
    of_card = ("alias", "role", "agent", "node", "kinds", "labels", "weight", "slots", "busy")
    return {
        **fields(one.card, *of_card, "done", "applied", "version"),
        **fields(one, "level", "misses", "silent_ms"),
    }
