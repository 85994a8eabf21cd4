"""`antiphon attention`: what needs somebody, and what to type about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import ago, out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

FULL_ID: Final = 64


@command
async def attention(
    mesh: Mesh,
    as_json: bool,
    *,
    limit: int = typer.Option(50, min=1, max=500, help="At most this many, the newest."),
    check: bool = typer.Option(False, "--check", help="Exit with 1 if there is anything."),
) -> Answer:
    """List what needs a person.

    Open questions, jobs that asked for somebody or have no result, jobs that nobody runs, alarms.

    Dead jobs of one kind that ended alike are one item: retry and dismiss act on all of it. Also
    conflicts, a coordinator that does not answer, and what services of this machine's node have
    set aside. An item is gone as soon as it is resolved.

    \b
      antiphon attention
      antiphon attention --check || notify-send 'the mesh needs you'
    """  # noqa: D301 - \b keeps the lines apart
    from msgspec import to_builtins

    from antiphon.sdk.queries.attention import ends_with, resolved_by, shown

    found = await mesh.queries.attention(limit=limit)
    nodes = [node for one in found for node in (one.whose, one.by) if node]
    name = await node_names(mesh, () if as_json else nodes)

    def words() -> None:
        if not found:
            out.say("nothing needs attention")
        for one in found:
            whose = f", of {name(one.whose)}" if one.whose else ""
            what = " ".join(map(_short, shown(one).split())) + whose
            reason = f"{what}: {one.reason}" if what else one.reason
            out.pieces((one.service, "strong"), (f"  {reason}", ""))
            by = f", by {name(one.by)}" if one.by else ""
            out.pieces((f"  {ago(one.since_ms)}{by}; ends with {ends_with(one)}", "quiet"))
            for line in resolved_by(one).split("; "):
                out.pieces((f"  {line}", "quiet"))
        if found.next:
            out.say("there is more: --limit")

    items = [{**to_builtins(one), "ends_with": ends_with(one)} for one in found]
    facts = {"items": items, "has_more": bool(found.next)}
    return Answer(facts, words, 1 if check and found else Exit.OK)


def _short(part: str) -> str:
    return short(part) if len(part) == FULL_ID else part
