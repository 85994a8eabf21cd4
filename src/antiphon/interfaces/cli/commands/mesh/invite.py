"""`antiphon invite`: prints a ticket with which one machine can join."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import duration_s, in_words, until_s
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.sdk.defaults import RightName


@command
def invite(
    home: Path | None,
    *,
    can: list[RightName] = typer.Option(..., help="A permission; may be repeated."),
    kind: list[str] | None = typer.Option(
        None, help="For 'render.video', 'render.*' or '*'; may be repeated."
    ),
    until: str = typer.Option(
        "30d", help="When the permissions end: 2d, friday, 2026-12-24, never."
    ),
    alias: str = typer.Option("", help="A name for the machine."),
    network: bool = typer.Option(False, "--network", help="Allow its commands to use the network."),
    within: str = typer.Option("15m", help="How long the ticket can be used."),
) -> Answer:
    """Print a ticket that lets one machine join, once.

    Anyone who has the ticket can use it: treat it like a password.
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
    facts = {
        "ticket": text,
        "id": ticket.id,
        "expires_s": ticket.expires_s,
        **fields(terms, "can", "kinds", "until_s", "alias", "network"),
    }

    def words() -> None:
        what = f"{', '.join(rights)} {', '.join(map(shlex.quote, kinds))}"
        what += ", with network access" * network
        err.say(f"A ticket for {alias or 'one machine'}: {what}, {in_words(end_s, now_s)}.")
        err.say(f"It works once, within {within}. On the other machine:")
        err.say("  antiphon join TICKET")
        err.say("")
        out.verbatim(text)

    return Answer(facts, words)
