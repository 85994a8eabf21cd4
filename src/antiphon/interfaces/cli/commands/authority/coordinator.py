"""`antiphon coordinator [NODE]`: shows or names the node that offers waiting jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, open_mesh, print_json
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Holdings


def coordinator(
    node: Annotated[
        str,
        typer.Argument(
            metavar="[NODE]",
            help="A did:key, an alias, the end of an id, or 'owner'. Default: show the current.",
            show_default=False,
        ),
    ] = "",
    home: HomeOption = None,
    *,
    as_json: JsonOption = False,
) -> int:
    """Show the coordinator, or name another one.

    There is exactly one at any time. No node takes over by itself.
    """
    work = _designate(node, home, as_json=as_json) if node else _show(home, as_json=as_json)
    return command_loop.run(work)


async def _show(home: Path | None, *, as_json: bool) -> int:
    from antiphon.sdk.authority.delegation import who

    async with open_mesh(home) as mesh:
        held = await who(mesh)
    is_owner = held.coordinator == held.owner
    if as_json:
        alias = held.tree.names.get(held.coordinator, "")
        print_json({"coordinator": held.coordinator, "alias": alias, "is_owner": is_owner})
        return Exit.OK
    out.say(f"{held.called(held.coordinator)} coordinates")
    err.pieces(("  antiphon doctor shows whether it is online", "quiet"))
    return Exit.OK


async def _designate(node: str, home: Path | None, *, as_json: bool) -> int:
    from antiphon.sdk.authority.delegation import coordinator as put
    from antiphon.sdk.authority.delegation import who

    async with acting(home) as mesh:
        changed = await put(mesh, node)
        held = await who(mesh)
    if as_json:
        told = {"coordinator": changed.after, "before": changed.before, "seq": changed.seq}
        print_json(told)
        return Exit.OK
    name = held.called(held.coordinator)
    if not changed.seq:
        out.say(f"nothing to do: {name} already coordinates")
        return Exit.OK
    was = held.called(changed.before) if changed.before else "nobody"
    words = f"{name} coordinates from record {changed.seq:,} on, instead of {was}"
    out.pieces(("✓ ", "succeeded"), (words, ""))
    _warn_of_processes(held, held.coordinator)
    return Exit.OK


def _warn_of_processes(held: Holdings, node: str) -> None:
    """A machine's key only signs delegations: the user meant one of its processes."""
    from antiphon.sdk.authority.delegation import acts_through

    processes = acts_through(held, node)
    if not processes:
        return
    names = ", ".join(held.called(did) for did in processes)
    err.say(f"  but {held.called(node)} is a machine; its processes sign: {names}")
    err.say("  try: ", f"antiphon coordinator {held.tree.names.get(processes[0], processes[0])}")
