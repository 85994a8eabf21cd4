"""`antiphon address [ADDRESS]`: where the mesh is reached, and where it moves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.terminal import out

AddressArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ADDRESS]",
        help="Where it will be (on its host) or is now (elsewhere): nats://host:4222",
        show_default=False,
    ),
]


@command
async def address(home: Path | None, address: AddressArgument = None) -> Answer:
    """Show where the mesh is reached, or say where it moves.

    On the machine that hosts it: tells all members the address at which it will be. Those that
    are connected within the next seconds keep it, and go there when the old server has stopped.
    On any other machine: looks for the mesh at this address, and keeps it. No new ticket is needed.
    """
    from antiphon.sdk.hosting.addresses import change_address, known_addresses

    if address is None:
        known = known_addresses(home)
        return Answer({"addresses": known}, lambda: out.say("\n".join(known)))
    is_announced, engine = await change_address(address, home=home)

    def words() -> None:
        if is_announced:
            out.say(f"members are told that the mesh will be at {engine}")
            out.say("  leave it running for a minute; then back up, stop it, and restore it there")
        else:
            out.say(f"the mesh is at {engine}: this machine uses it from now on")

    return Answer({"announced": is_announced, "engine": engine}, words)
