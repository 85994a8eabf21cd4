"""`antiphon coordinator [NODE]`: shows or names the node that offers waiting jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Holdings


@command
async def coordinator(
    home: Path | None,
    node: str = typer.Argument(
        "",
        metavar="[NODE]",
        help="A did:key, an alias, the end of an id, or 'owner'. Default: show the current.",
        show_default=False,
    ),
) -> Answer:
    """Show the coordinator, or name another one.

    There is exactly one at any time. No node takes over by itself.
    """
    if not node:
        async with open_mesh(home) as mesh:
            held = await mesh.authority.who()
        return _shown(held)
    async with acting(home) as mesh:
        changed = await mesh.authority.set_coordinator(node)
        held = await mesh.authority.who()

    def words() -> None:
        name = held.called(held.coordinator)
        if not changed.seq:
            out.say(f"nothing to do: {name} already coordinates")
            return
        was = held.called(changed.before) if changed.before else "nobody"
        told = f"{name} coordinates from record {changed.seq:,} on, instead of {was}"
        out.pieces(("✓ ", "succeeded"), (told, ""))
        _warn_of_processes(held, held.coordinator)

    facts = {"coordinator": changed.after, "before": changed.before, "seq": changed.seq}
    return Answer(facts, words)


def _shown(held: Holdings) -> Answer:
    def words() -> None:
        out.say(f"{held.called(held.coordinator)} coordinates")
        err.pieces(("  antiphon doctor shows whether it is online", "quiet"))

    alias, is_owner = held.tree.names.get(held.coordinator, ""), held.coordinator == held.owner
    return Answer({"coordinator": held.coordinator, "alias": alias, "is_owner": is_owner}, words)


def _warn_of_processes(held: Holdings, node: str) -> None:
    """A machine's key only signs delegations: the user meant one of its processes."""
    from antiphon.sdk.authority.delegation import acts_through

    processes = acts_through(held, node)
    if not processes:
        return
    names = ", ".join(held.called(did) for did in processes)
    err.say(f"  but {held.called(node)} is a machine; its processes sign: {names}")
    err.say("  try: ", f"antiphon coordinator {held.tree.names.get(processes[0], processes[0])}")
