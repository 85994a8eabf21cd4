"""`antiphon invite`: a ticket that lets one machine in."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

import typer

from antiphon.interfaces.cli.screen.durations import duration_s, in_words, until_s
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import HomeOption, JsonOption, print_json
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.sdk.defaults import RightName


def invite(
    *,
    can: Annotated[list[RightName], typer.Option("--can", help="What it may do; may be repeated.")],
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="'render.video', 'render.*' or '*'; several times."),
    ] = None,
    until: Annotated[
        str, typer.Option("--until", help="When the grant ends: 2d, friday, 2026-12-24, never.")
    ] = "30d",
    alias: Annotated[str, typer.Option("--alias", help="What to call that machine.")] = "",
    network: Annotated[
        bool, typer.Option("--network", help="Let commands that it runs have the network.")
    ] = False,
    within: Annotated[
        str, typer.Option("--within", help="How long the ticket waits to be used.")
    ] = "15m",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print a ticket that lets one machine join, once.

    Whoever has the ticket can use it: hand it over as you would a password.
    """
    from antiphon.sdk.hosting.hosted_mesh import Terms, write_ticket
    from antiphon.sdk.hosting.hosted_mesh import invite as make_ticket
    from antiphon.sdk.mesh import StateDirectory

    now_s = int(time.time())
    kinds = tuple(kind or ["*"])
    end_s = until_s(until, now_s)
    rights = [right.value for right in can]
    terms = Terms(can=tuple(rights), kinds=kinds, until_s=end_s, alias=alias, network=network)
    ticket = make_ticket(StateDirectory.find(home), terms, within_s=duration_s(within))
    text = write_ticket(ticket)
    if as_json:
        print_json(
            {
                "ticket": text,
                "id": ticket.id,
                "expires_s": ticket.expires_s,
                "can": rights,
                "kinds": list(kinds),
                "until_s": end_s,
                "alias": alias,
                "network": network,
            }
        )
        return Exit.OK
    what = f"{', '.join(rights)} {', '.join(map(shlex.quote, kinds))}"
    what += ", with the network" * network
    err.say(f"A ticket for {alias or 'one machine'}: {what}, {in_words(end_s, now_s)}.")
    err.say(f"Good once, within {within}. On the other machine:")
    err.say("  antiphon join TICKET")
    err.say("")
    out.verbatim(text)
    return Exit.OK
