"""`antiphon join`: joins a mesh with a ticket."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.commands.mesh.up import place_of
from antiphon.interfaces.cli.commands.nodes.worker import run_jobs
from antiphon.interfaces.cli.screen.command import Told, command, fields, serve
from antiphon.interfaces.cli.screen.durations import in_words
from antiphon.interfaces.cli.screen.options import print_json, short_node
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.command_offers import OfferOptions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from antiphon.sdk.authority.delegation import Grant
    from antiphon.sdk.hosting.hosted_mesh import Access

NEXT: Final = (
    ("claim", "Run jobs", "antiphon worker MODULE, or antiphon worker --commands KIND"),
    ("schedule", "Submit jobs", "antiphon submit KIND ARGS"),
    ("answer", "Answer questions", "antiphon questions, and antiphon answer ID"),
)
"""For each permission: what the machine can do with it, and what to type."""
READERS: Final = ("Look at jobs", "antiphon jobs")
"""The same for a machine that has neither."""


@command
def join(
    home: Path | None,
    as_json: bool,
    ticket: str = typer.Argument(
        "-",
        metavar="[TICKET]",
        help="What 'antiphon invite' printed, or a file that contains it. Default: ask for it.",
        show_default=False,
    ),
    *,
    alias: str = typer.Option("", help="A name for this machine. Default: its host name."),
    work: str = typer.Option(
        "",
        metavar="MODULE",
        help="Then run the tasks of MODULE, or 'example' for the example tasks.",
    ),
    commands: OfferOptions,
) -> Coroutine[Any, Any, Told]:
    """Join a mesh with a ticket.

    Creates this machine's key (it never leaves the machine), proves to the mesh's gate that it
    has the key, and stores the login from the gate in the state directory.
    """
    from antiphon.sdk.environment import read_environment
    from antiphon.sdk.hosting.hosted_mesh import read_ticket, redeem
    from antiphon.sdk.mesh import StateDirectory

    read_environment().require_server()
    offer = commands.offered()
    is_working = bool(work or offer.kinds)
    opened, place = read_ticket(_text(ticket)), place_of(home)

    async def redeem_ticket() -> int | None:
        access = await redeem(
            StateDirectory(place),
            opened,
            alias=alias or socket.gethostname()[:64],
            breaker=read_environment().make_breaker(),
        )
        owner, grants = await _owner_and_grants(place)
        if as_json:
            _tell_program(access, place, owner, grants)
        else:
            _tell(place, grants, is_working=is_working)
        if not is_working:
            return None
        os.environ["ANTIPHON_HOME"] = str(place)
        return await serve(
            lambda stop: run_jobs(stop, work, offer, as_json=as_json), as_json=as_json
        )

    return redeem_ticket()


def _text(ticket: str) -> str:
    """The ticket's text: the argument itself, or read from a file or standard input."""
    if ticket == "-":
        if sys.stdin.isatty():
            err.say("Paste the ticket, then press Enter:")
            return sys.stdin.readline()
        return sys.stdin.read(64 * 1024)
    path = Path(ticket)
    if len(ticket) < 255 and path.is_file():  # noqa: PLR2004 - the longest file name
        return path.read_text()
    return ticket


async def _owner_and_grants(place: Path) -> tuple[str, tuple[Grant, ...]]:
    """The owner, and what this machine may do; nothing if the mesh cannot be asked now."""
    from antiphon.sdk.hosting.strongest_key import owner_and_own_grants

    try:
        return await owner_and_own_grants(place)
    except AntiphonError:
        return "", ()  # the ticket is used and this machine is a member: joining did not fail


def _tell_program(access: Access, place: Path, owner: str, grants: Sequence[Grant]) -> None:
    from antiphon.sdk.authority.delegation import rights_of
    from antiphon.sdk.mesh import StateDirectory

    print_json(
        {
            "event": "joined",
            **fields(StateDirectory(place).mesh(), "mesh", "name"),
            "node": _machine(place),
            "owner": owner or None,
            "scope": None if access.scope is None else access.scope.by_command,
            "may": [
                {"right": rights_of(one.command), "kinds": one.kinds, "until_s": one.ends_s}
                for one in grants
            ],
            "home": str(place),
        }
    )


def _tell(place: Path, grants: Sequence[Grant], *, is_working: bool) -> None:
    from antiphon.sdk.authority.delegation import in_words as rights
    from antiphon.sdk.authority.delegation import rights_of
    from antiphon.sdk.mesh import StateDirectory

    joined = StateDirectory(place).mesh()
    out.say(f"joined mesh {joined.name!r} ({joined.mesh}) as {short_node(_machine(place))}")
    out.say(f"  state    {place}")
    out.say(f"  engine   {joined.engine}")
    if not grants:
        out.say("  may      not known now: antiphon who shows it")
        return
    ends = [one.ends_s for one in grants if one.ends_s is not None]
    until = in_words(min(ends, default=None), int(time.time()))
    out.hanging([("  may      ", "")], [(f"{rights(grants)}; {until}", "")])
    if is_working:
        return
    held = {rights_of(one.command) for one in grants}
    fitting = [(what, how) for right, what, how in NEXT if held & {right, "all", "all jobs"}]
    for what, how in fitting or [READERS]:
        out.say("")
        out.say(f"{what} from here:")
        out.say(f"  {how}")


def _machine(place: Path) -> str:
    from antiphon.sdk.mesh import StateDirectory

    return StateDirectory(place).signer("machine").did
