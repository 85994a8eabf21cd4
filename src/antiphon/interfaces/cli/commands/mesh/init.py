"""`antiphon init`: creates a mesh for several machines, and hosts it here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.mesh.up import keep_up, parse_listen, place_of, say_engine
from antiphon.interfaces.cli.screen.command import Told, command
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.options import print_json, short_node
from antiphon.interfaces.cli.screen.recovery_key import recovery_text, say_recovery, show_recovery
from antiphon.interfaces.cli.screen.terminal import out

if TYPE_CHECKING:
    from antiphon.sdk.hosting.hosted_mesh import Hosting


@command
async def init(
    home: Path | None,
    as_json: bool,
    stop: Stop,
    *,
    name: str = typer.Option("", help="A name for the mesh. Default: the directory's name."),
    listen: str = typer.Option(
        "127.0.0.1:0",
        metavar="HOST:PORT",
        help="Where its server listens. With 0.0.0.0:4222 other machines can connect.",
    ),
    reach: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="A name or address at which other machines reach it; may be repeated.",
    ),
    stay: bool = typer.Option(True, "--up/--no-up", help="Keep hosting it, as 'antiphon up' does."),
) -> Told:
    """Create a mesh here, and host it.

    Creates the owner's key, a recovery key that is shown once, a certificate authority, and an
    account on its own server. At first only the owner has permissions. If the recovery key could
    not be shown, run the command again: it shows the same one.
    """
    from antiphon.sdk.hosting.hosted_mesh import found_and_host

    where, place = parse_listen(listen, reach or []), place_of(home)
    known_as = name or place.parent.name or "antiphon"
    async with found_and_host(place, name=known_as, listen=where) as hosting:
        show_recovery(hosting, lambda: _tell(hosting, stays=stay, as_json=as_json))
        return await keep_up(hosting, stop, as_json=as_json) if stay else None


def _tell(hosting: Hosting, *, stays: bool, as_json: bool) -> None:
    """Print what was created, and what you must keep."""
    owner = hosting.home.signer("owner").did
    if as_json:
        print_json(
            {
                "event": "founded",
                "mesh": hosting.mesh.mesh,
                "name": hosting.mesh.name,
                "owner": owner,
                "recovery": recovery_text(hosting.recovery_seed),
                "home": str(hosting.home.path),
            }
        )
        return
    out.pieces(
        ("antiphon init", "strong"),
        (f"  mesh {hosting.mesh.name!r} ({hosting.mesh.mesh}) created", ""),
    )
    out.say(f"  state    {hosting.home.path}")
    say_engine(hosting)
    whose = f"{short_node(owner)}, whose key is in {hosting.home.path / 'keys' / 'owner.key'}"
    out.hanging([("  owner    ", "")], [(whose, "")])
    out.say("")
    say_recovery(hosting)
    out.say("The log grows without end, unless it has an archive:")
    out.say("  ANTIPHON_ARCHIVE=DIR antiphon up")
    out.say("")
    if not stays:
        out.say("It is not hosted now. To host it, in this directory:")
        out.say("  antiphon up")
        out.say("")
    out.say("To invite a machine, in another terminal in this directory:")
    out.say("  antiphon invite --can claim --kind 'example.*' --until 2d --alias gpu-box")
    out.say("")
