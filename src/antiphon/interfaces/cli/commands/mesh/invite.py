"""`antiphon invite`: prints a ticket with which one machine can join."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from urllib.parse import urlsplit

import typer

from antiphon.interfaces.cli.commands.authority.delegate import GrantOptions
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import duration_s, in_words
from antiphon.interfaces.cli.screen.terminal import err, out


@command
def invite(
    home: Path | None,
    *,
    grant: GrantOptions,
    within: str = typer.Option("15m", help="How long the ticket can be used."),
) -> Answer:
    """Print a ticket that lets one machine join, once.

    Anyone who has the ticket can use it: treat it like a password.
    """
    from antiphon.sdk.hosting.hosted_mesh import invite as make_ticket
    from antiphon.sdk.hosting.hosted_mesh import write_ticket
    from antiphon.sdk.mesh import StateDirectory
    from antiphon.settings import is_loopback

    now_s = int(time.time())
    terms = grant.terms(now_s)
    ticket = make_ticket(StateDirectory.find(home), terms, within_s=duration_s(within))
    text = write_ticket(ticket)

    def words() -> None:
        what = f"{', '.join(terms.can)} {', '.join(map(shlex.quote, terms.kinds))}"
        what += ", with network access" * terms.network
        what += ", with its model calls audited" * terms.audit
        until = in_words(terms.until_s, now_s)
        err.say(f"A ticket for {terms.alias or 'one machine'}: {what}, {until}.")
        err.say(f"It works once, within {within}. On the other machine:")
        err.say("  antiphon join TICKET")
        if is_loopback(urlsplit(ticket.engine).hostname or ""):
            err.say("This mesh listens to this machine alone: no other one can join it.")
            err.say("  try: ", "antiphon init --listen 0.0.0.0:4222 --reach NAME, for a new mesh")
        err.say("")
        out.verbatim(text)

    about = fields(terms, "can", "kinds", "until_s", "alias", "network", "audit")
    return Answer({"ticket": text, **fields(ticket, "id", "expires_s"), **about}, words)
