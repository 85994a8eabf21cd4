"""`antiphon why JOB`: which worker got a job and why, and what a pending job waits for."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import typer

from antiphon.interfaces.cli.commands.plans.plan import plan_answer, plan_of
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_any
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import short, short_node
from antiphon.interfaces.cli.screen.terminal import (
    Piece,
    clock,
    err,
    moment,
    out,
    span,
    state_piece,
)
from antiphon.sdk.defaults import ROLL_CALL_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.explanation import Explanation, Tenure, Wait, WorkerDraw
    from antiphon.sdk.jobs.unserved_kinds import UnservedKind
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Card, Mesh

DRAW_DIGITS = 12


@command
async def why(
    mesh: Mesh,
    job: JobArgument,
    *,
    wait: float = typer.Option(
        ROLL_CALL_S, parser=some_seconds, metavar="TIME", help="How long to wait for answers."
    ),
) -> Answer:
    """Explain which worker got a job, or what it waits for.

    The workers listed are those online now; what happened is read from the log.
    """
    from antiphon.sdk.authority.delegation import stuck_route

    found = await find_any(mesh, job)
    if isinstance(found, tuple):
        return await _why_not_a_job(mesh, found)
    told, cards = await mesh.job(found.kind, found.id).explain(wait_s=wait)
    held = await mesh.authority.who()
    names = {**held.tree.names, held.owner: "owner"} | {card.node: card.alias for card in cards}
    stuck = stuck_route(held, found.kind) if told.state == "pending" else None
    unserved = await _unserved(mesh, told, cards)

    def words() -> None:
        _tell(told, names, unserved)
        if stuck is not None:
            out.say(f"  {stuck.words}")
            err.say("  try: ", stuck.hint)
        if any(wait.what == "worker" for wait in told.waits_for):
            meant = similar_kinds(told.kind, {kind for card in cards for kind in card.kinds})
            if meant:
                words = f"{', '.join(meant)}: is the kind {told.kind} a typing mistake?"
                out.say(f"  workers that are online run {words}")

    facts = {
        **_as_object(told, names),
        "stuck_route": stuck.words if stuck else "",
        "unserved": unserved.words if unserved else "",
    }
    return Answer(facts, words)


async def _unserved(mesh: Mesh, told: Explanation, cards: Sequence[Card]) -> UnservedKind | None:
    """What there is to say of its kind, if the job waits and nobody runs it."""
    from antiphon.sdk.jobs.unserved_kinds import unserved_here

    if told.state != "pending":
        return None
    found = await unserved_here(mesh, kind=told.kind, cards=cards)
    return next((one for one in found if one.kind == told.kind), None)


async def _why_not_a_job(mesh: Mesh, key: LaneKey) -> Answer:
    """A plan's name: whether it runs, and when. Nothing else has something to explain."""
    plan = await plan_of(mesh, key)
    if plan is None:
        raise WrongUsage(
            f"{key.name} is not a job: it is one of {key.family}", hint=f"antiphon show {key.name}"
        )
    return plan_answer(plan, await node_names(mesh, [plan.author]))


def similar_kinds(kind: str, known: set[str]) -> list[str]:
    """Kinds that somebody may have meant who wrote this one."""
    return difflib.get_close_matches(kind, sorted(known), n=3, cutoff=0.75)


def _as_object(told: Explanation, names: dict[str, str]) -> dict[str, Any]:
    from msgspec import to_builtins

    plain: dict[str, Any] = to_builtins(told)
    for part in (*plain["lots"], *plain["tenures"], *plain["lost"]):
        part["alias"] = names.get(part["node"], "")
    for wait, said in zip(plain["waits_for"], told.waits_for, strict=True):
        wait["words"] = _waiting(said, names)
    return plain


def _tell(told: Explanation, names: dict[str, str], unserved: UnservedKind | None) -> None:
    from antiphon.sdk.explanation import lost_words, selection_words

    out.pieces(state_piece(told.state), (f"  {told.kind} {short(told.job_id)}", "strong"))
    out.pieces((f"  {selection_words(told)}", "quiet"))
    if told.requires:
        out.pieces((f"  requires {', '.join(told.requires)}", "quiet"))
    if told.route:
        out.pieces((f"  routed to {_name(told.route, names)}: only it may claim the job", "quiet"))
    if told.selection == "rendezvous":
        out.pieces((f"  seed {told.seed}", "quiet"))
    for wait in told.waits_for:
        out.say(f"  {_waiting(wait, names)}")
    if unserved is not None:
        out.say(f"  {unserved.words}")
    if lost := lost_words(told.lost, lambda node: _name(node, names)):
        out.say(f"  {lost}")
    if told.lots:
        out.say("")
        heads, rows = _filled(
            ("RANK", "DRAW", "WORKER", "FREE", "LABELS", ""),
            [_lot_row(lot, names) for lot in told.lots],
        )
        out.table(heads, rows, wraps=True)
    if told.tenures:
        out.say("")
        held = [_tenure_row(tenure, names) for tenure in told.tenures]
        out.table(("HELD BY", "FROM", "FOR", "THEN"), held, flexible=3)
    for node, until_ms in told.cooling:
        out.say(f"  {_name(node, names)} lost its lease; it may claim again at {clock(until_ms)}")


def _filled(heads: Sequence[str], rows: list[list[Piece]]) -> tuple[list[str], list[list[Piece]]]:
    """The table without its empty columns: with queue selection there are no draws."""
    kept = [at for at in range(len(heads)) if any(row[at][0] for row in rows)]
    return [heads[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _waiting(wait: Wait, names: dict[str, str]) -> str:
    from antiphon.sdk.explanation import wait_words

    return wait_words(wait, lambda node: _name(node, names), clock, moment)


def _name(node: str, names: dict[str, str]) -> str:
    return names.get(node) or short_node(node)


def _lot_row(lot: WorkerDraw, names: dict[str, str]) -> list[Piece]:
    is_candidate = not lot.unfit
    style = "" if is_candidate else "quiet"
    return [
        ("" if lot.rank is None else str(lot.rank), "strong"),
        (lot.draw[:DRAW_DIGITS], style),
        (_name(lot.node, names), style),
        (str(lot.free), style),
        (", ".join(lot.labels) + (f" ×{lot.weight}" if lot.weight > 1 else ""), style),
        (lot.words, style),
    ]


def _tenure_row(tenure: Tenure, names: dict[str, str]) -> list[Piece]:
    lasted = "" if tenure.until_ms is None else span((tenure.until_ms - tenure.since_ms) / 1000)
    return [
        (_name(tenure.node, names), ""),
        (clock(tenure.since_ms, with_ms=True), "quiet"),
        (lasted, "quiet"),
        (tenure.how or "holds it", "" if tenure.how else "running"),
    ]
