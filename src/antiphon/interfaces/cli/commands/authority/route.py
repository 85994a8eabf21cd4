"""`antiphon route KIND NODE`: lets only one node claim a kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.options import open_mesh, short_node
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Holdings


@command
async def route(
    home: Path | None,
    kind: str = typer.Argument(
        "",
        metavar="[KIND]",
        help="A kind, with all kinds below it. Default: list all routes.",
        show_default=False,
        autocompletion=complete_kind,
    ),
    node: str = typer.Argument(
        "",
        metavar="[NODE]",
        help="The only node that may claim it: a did:key, an alias, or the end of an id.",
        show_default=False,
    ),
    *,
    clear: bool = typer.Option(False, "--clear", help="Remove the route."),
) -> Answer:
    """Show routes, or set one.

    From then on only that node may claim the kind; the longest route that matches decides. Other
    nodes keep the jobs that they already hold.
    """
    if clear and (node or not kind):
        raise WrongUsage("--clear needs a kind and no node", hint="antiphon route KIND --clear")
    if kind.endswith(".*"):
        raise WrongUsage(
            "a route takes a kind without .*: it includes all kinds below it",
            hint=f"antiphon route {kind[:-2]} {node or '…'}",
        )
    return await (_set(home, kind, node or None) if node or clear else _list(home, kind))


async def _list(home: Path | None, kind: str) -> Answer:
    from antiphon.sdk.authority.delegation import stuck_route, stuck_routes

    async with open_mesh(home) as mesh:
        held = await mesh.authority.who()
        decides = mesh.authority.route_for(kind) if kind else None
    names = held.tree.names
    shown = {one: did for one, did in held.routes.items() if not kind or did == decides}

    def words() -> None:
        if kind:
            may = f"only {held.called(decides)}" if decides else "every node with the permission"
            out.say(f"{kind}: {may} may claim it")
        elif shown:
            rows = [
                [(one, "strong"), (names.get(did, ""), ""), (short_node(did), "quiet")]
                for one, did in shown.items()
            ]
            out.table(("KIND", "ONLY", "ID"), rows, flexible=1)
        else:
            out.say("no routes: every node with the permission may claim a kind")
            err.say("  try: ", "antiphon route KIND NODE")
        for stuck in [stuck_route(held, kind)] if kind else stuck_routes(held):
            if stuck is not None:
                err.say("  but ", stuck.words)
                err.say("  try: ", stuck.hint)

    routes = [{"kind": one, "node": did, "alias": names.get(did, "")} for one, did in shown.items()]
    return Answer({"routes": routes, **({"node": decides} if kind else {})}, words)


async def _set(home: Path | None, kind: str, node: str | None) -> Answer:

    async with acting(home) as mesh:
        changed = await mesh.authority.set_route(kind, node)
        held = await mesh.authority.who()

    def words() -> None:
        now = _now(kind, changed.after, held)
        if not changed.seq:
            out.say(f"nothing to do: {now}")
        else:
            was = f", instead of {held.called(changed.before)}" if changed.before else ""
            out.pieces(("✓ ", "succeeded"), (f"from record {changed.seq:,} on {now}{was}", ""))
        if changed.after is not None:
            _warn(held, kind, changed.after)

    facts = {"kind": kind, "before": changed.before, "node": changed.after, "seq": changed.seq}
    return Answer(facts, words)


def _now(kind: str, node: str | None, held: Holdings) -> str:
    if node is None:
        return f"every node with the permission may claim {kind}"
    return f"only {held.called(node)} may claim {kind} and kinds below it"


def _warn(held: Holdings, kind: str, node: str) -> None:
    """Warn about a route to a node that may not claim: its jobs would never run."""
    from antiphon.sdk.authority.delegation import may_claim

    if not may_claim(held, node, kind):
        err.say(f"  but {held.called(node)} has no permission to claim {kind}: its jobs will wait")
        name = held.tree.names.get(node, node)
        err.say("  try: ", f"antiphon delegate {name} --can claim --kind '{kind}.*' --kind {kind}")
