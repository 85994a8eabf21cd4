"""`antiphon invite`: prints a ticket with which one machine can join."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import typer

from antiphon.interfaces.cli.commands.authority.delegate import GrantOptions
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import duration_s, in_words
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.terminal import err, out

WORKER: Final = ("claim", "schedule", "lock", "memory", "message")
"""What a machine of one's own may do that runs jobs: what their tasks can call."""


@command
def invite(
    home: Path | None,
    kinds: list[str] | None = typer.Argument(
        None,
        metavar="[KIND]...",
        help="With --worker: the kinds of its jobs. Default: all.",
        show_default=False,
        autocompletion=complete_kind,
    ),
    *,
    worker: bool = typer.Option(
        False,
        "--worker",
        help="For a machine of yours that runs jobs: it may claim them and do what tasks do:"
        " submit further jobs, take locks, use shared memory, send messages.",
    ),
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
    if kinds and not worker:
        named = " ".join(f"--kind {shlex.quote(one)}" for one in kinds)
        raise WrongUsage("kinds without --worker", hint=f"antiphon invite --can claim {named}")
    can = WORKER if worker else ()
    terms = grant.terms(now_s, "antiphon invite", can=can, kinds=kinds or ())
    ticket = make_ticket(StateDirectory.find(home), terms, within_s=duration_s(within))
    text = write_ticket(ticket)

    def words() -> None:
        named = ", ".join(map(shlex.quote, terms.kinds))
        what = f"{', '.join(terms.can)} {named}"
        what += ", with network access" * terms.network
        what += ", with its model calls audited" * terms.audit
        until = in_words(terms.until_s, now_s)
        err.say(f"A ticket for {terms.alias or 'one machine'}: {what}, {until}.")
        if worker:
            err.say("So it can run jobs, and its tasks can submit further ones, take locks, use")
            err.say("shared memory and send messages, where the names are of these kinds.")
        err.say(f"It works once, within {within}. On the other machine:")
        err.say("  antiphon join TICKET")
        if is_loopback(urlsplit(ticket.engine).hostname or ""):
            err.say("This mesh listens to this machine alone: no other one can join it.")
            err.say("  try: stop 'antiphon up' there, type this, and invite again:")
            err.say("  antiphon up --listen 0.0.0.0:4222 --reach NAME")
        err.say("")
        out.verbatim(text)

    about = fields(terms, "can", "kinds", "until_s", "alias", "network", "audit")
    return Answer({"ticket": text, **fields(ticket, "id", "expires_s"), **about}, words)
