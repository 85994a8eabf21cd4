"""`antiphon join`: become a member of a mesh with a ticket."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli import life, worker
from antiphon.interfaces.cli.durations import in_words
from antiphon.interfaces.cli.exits import Exit
from antiphon.interfaces.cli.offers import CommandsOption, NetworkOption, UnsafeOption, offered
from antiphon.interfaces.cli.options import HomeOption, JsonOption, print_json, short_node
from antiphon.interfaces.cli.terminal import err, out
from antiphon.interfaces.cli.up import place_of

if TYPE_CHECKING:
    from antiphon.sdk.hosting import Access, Ticket


def join(
    ticket: Annotated[
        str,
        typer.Argument(
            metavar="[TICKET]",
            help="What 'antiphon invite' printed, or a file with it. Default: asked for.",
            show_default=False,
        ),
    ] = "-",
    *,
    alias: Annotated[
        str, typer.Option("--alias", help="What to call this machine. Default: its host name.")
    ] = "",
    work: Annotated[
        str,
        typer.Option(
            "--work", metavar="MODULE", help="Then answer the tasks of MODULE ('example': ours)."
        ),
    ] = "",
    commands: CommandsOption = None,
    network: NetworkOption = False,
    unsafe_no_sandbox: UnsafeOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Join a mesh with a ticket.

    Makes this machine's key here (it never travels), proves to the mesh's gate that it is here,
    and keeps what the gate gives in the state directory.
    """
    from antiphon.sdk.hosting import read_ticket, redeem
    from antiphon.sdk.mesh import Home

    offer = offered(commands, network=network, unsafe=unsafe_no_sandbox)
    is_working = bool(work or offer.kinds)
    opened, place = read_ticket(_text(ticket)), place_of(home)

    async def knock() -> int:
        access = await redeem(Home(place), opened, alias=alias or socket.gethostname()[:64])
        _tell(opened, access, place, is_working=is_working, as_json=as_json)
        return Exit.OK

    code = life.run(knock())
    if not is_working:
        return code
    os.environ["ANTIPHON_HOME"] = str(place)
    return worker.worker(
        work,
        commands=list(offer.kinds),
        network=network,
        unsafe_no_sandbox=unsafe_no_sandbox,
        home=place,
        as_json=as_json,
    )


def _text(ticket: str) -> str:
    """The ticket itself, from wherever it was given."""
    if ticket == "-":
        if sys.stdin.isatty():
            err.say("Paste the ticket, then press Enter:")
            return sys.stdin.readline()
        return sys.stdin.read(64 * 1024)
    path = Path(ticket)
    if len(ticket) < 255 and path.is_file():  # noqa: PLR2004 - longer is no file's name
        return path.read_text()
    return ticket


def _tell(ticket: Ticket, access: Access, place: Path, *, is_working: bool, as_json: bool) -> None:
    from antiphon.sdk.mesh import Home

    node = Home(place).signer("machine").did
    scope = access.scope
    if as_json:
        told = None if scope is None else {"reads": scope.reads, "works": scope.works}
        print_json(
            {
                "event": "joined",
                "mesh": ticket.mesh,
                "name": ticket.name,
                "node": node,
                "owner": ticket.owner,
                "scope": told,
                "home": str(place),
            }
        )
        return
    out.say(f"joined mesh {ticket.name!r} ({ticket.mesh}) as {short_node(node)}")
    out.say(f"  state    {place}")
    out.say(f"  engine   {ticket.engine}")
    if scope is not None:
        may = ", ".join(_plain(one) for one in scope.works) or "nothing"
        reads = ", ".join(_plain(one) for one in scope.reads) or "nothing"
        out.say(f"  works on {may}; reads {reads}; {in_words(scope.until_s, int(time.time()))}")
    if not is_working:
        out.say("")
        out.say("Answer calls from here:")
        out.say("  antiphon worker MODULE, or antiphon worker --commands KIND")


def _plain(kind_filter: str) -> str:
    return kind_filter[:-1] + "*" if kind_filter.endswith(">") else kind_filter
