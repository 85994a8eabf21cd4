"""`antiphon up`: hosts a mesh: its server, its gate and a full node."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.jobs.watch import Ticker
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.http_options import (
    HttpOptions,
    http_address,
    say_dashboard,
    say_http,
    serve_dashboard,
    serve_http,
)
from antiphon.interfaces.cli.screen.options import load_settings, print_json
from antiphon.interfaces.cli.screen.recovery_key import say_recovery, show_recovery
from antiphon.interfaces.cli.screen.terminal import counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.hosting.hosted_mesh import Hosting, Listen
    from antiphon.settings import HttpAddress, Settings


@command
async def up(
    home: Path | None,
    as_json: bool,
    stop: Stop,
    *,
    listen: str = typer.Option(
        "",
        metavar="HOST:PORT",
        help="Where its server listens from now on. With 0.0.0.0:4222 other machines can connect."
        " Default: as before.",
    ),
    reach: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="A further name or address at which other machines reach it, from now on; may be"
        " repeated. The first is in new tickets.",
    ),
    http: HttpOptions,
) -> Answer:
    """Host the mesh that 'antiphon init' created here.

    Runs its server, the gate through which machines join, and a full node that verifies every
    record. Prints a link to the dashboard, which this machine alone can open.

    With --listen it opens a mesh to other machines that was made for this one, also one of
    'antiphon dev'. Everything that is on it stays.
    """
    from antiphon.sdk.hosting.hosted_mesh import further_listen, host
    from antiphon.sdk.mesh import StateDirectory

    settings = load_settings()
    address = http_address(http, settings)
    place = StateDirectory.find(home).path.resolve()
    where = None
    if listen or reach:
        names = reach or []
        where = further_listen(place, parse_listen(listen, names) if listen else None, names)
    async with host(place, listen=where) as hosting:
        if not as_json:
            _greet(hosting)
            if where is not None:
                _say_opened(hosting, where)
        if hosting.recovery_seed:
            _show_recovery(hosting, as_json=as_json)
        return await keep_up(hosting, stop, (settings, address), as_json=as_json)


async def keep_up(
    hosting: Hosting,
    stop: Stop,
    serving: tuple[Settings, HttpAddress | None] | None = None,
    *,
    as_json: bool,
) -> Answer:
    """Run the gate and a full node on a running server, until told to stop."""
    serving = serving or (load_settings(), None)
    async with AsyncExitStack() as stack:
        from antiphon.sdk.log_watch import event_of
        from antiphon.sdk.mesh import Mesh

        stop.last_acts.append(hosting.kill_server)
        mesh = await stack.enter_async_context(Mesh.open(home=hosting.home.path, role="client"))
        node = await stack.enter_async_context(mesh.node())
        await hosting.coordinate(node)
        gate = await stack.enter_async_context(hosting.gate(node))
        where = await serve_http(stack, serving, mesh, node, gate)
        link = await serve_dashboard(stack, mesh, hosting.mesh.name, node, as_json=as_json)
        if as_json:
            _print_ready(hosting, where, link)
        else:
            if where:
                say_http(mesh, where, serving[0], further=", /v1/tempo")
            say_dashboard(link)
            before = counted(sum(node.replica.sizes.by_state().values()), "job")
            out.pieces((f"up, {before} on it. Ctrl-C stops it; the log is kept.", "quiet"))
            show = Ticker()
            node.watchers.append(lambda applied: show.event(event_of(applied)))
        async with asyncio.TaskGroup() as group:
            supervision = group.create_task(hosting.supervise())
            await stop.wait()
            supervision.cancel()
    return Answer(
        {"event": "stopped"}, lambda: out.say("stopped. 'antiphon up' starts this mesh again")
    )


def _greet(hosting: Hosting) -> None:
    out.pieces(
        ("antiphon up", "strong"), (f"  mesh {hosting.mesh.name!r} ({hosting.mesh.mesh})", "")
    )
    out.say(f"  state    {hosting.home.path}")
    say_engine(hosting)


def _say_opened(hosting: Hosting, where: Listen) -> None:
    """Print what --listen and --reach changed."""
    listens = f"{where.host}:{hosting.mesh.engine.rpartition(':')[2]}"
    out.say(f"  listens  {listens}, from now on; new tickets lead there")
    out.hanging([("  names    ", "")], [(f"{', '.join(where.names)}, in a new certificate", "")])
    if hosting.was_open:
        out.say("  rights   were everybody's who could connect; from now on the owner grants them:")
        out.say("           antiphon invite --worker. Start workers of this machine again")
    if hosting.moved_from:
        out.say(f"  members  that joined before look for it at {hosting.moved_from}.")
        out.say("           Unless that still leads here, type on each of them:")
        out.say(f"           antiphon address {hosting.mesh.engine}")


def parse_listen(text: str, reach: list[str]) -> Listen:
    """Where to listen, and the names under which it is reached."""
    from antiphon.sdk.hosting.hosted_mesh import Listen

    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or int(port) > 65535:  # noqa: PLR2004 - ports end there
        raise WrongUsage(f"{text!r} is not HOST:PORT", hint="for example: --listen 0.0.0.0:4222")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        names = [host]
    else:
        names = [socket.gethostname()] if address.is_unspecified else [host]
    return Listen(host=host, port=int(port), names=tuple(dict.fromkeys([*reach, *names])))


def _show_recovery(hosting: Hosting, *, as_json: bool) -> None:
    """Show a recovery key that 'antiphon init' could not show: to a person, not to a log."""
    if out.is_terminal and not as_json:
        out.say("")
        show_recovery(hosting, lambda: say_recovery(hosting))
        return
    err.say("! nobody has seen the recovery key of this mesh yet", style="running")
    err.say("  try: stop this, and run 'antiphon init' or 'antiphon up' here in a terminal")


def say_engine(hosting: Hosting) -> None:
    """Print where members connect."""
    out.say(f"  engine   {hosting.mesh.engine}, TLS, every write synced to disk")


def _print_ready(hosting: Hosting, http: str, link: str) -> None:
    about = {"event": "ready", "mesh": hosting.mesh.mesh, **fields(hosting.mesh, "name", "engine")}
    here = {"home": str(hosting.home.path), "pid": os.getpid(), "server_pid": hosting.server_pid}
    moved = {"moved_from": hosting.moved_from} if hosting.moved_from else {}
    print_json({**about, **here, **moved, **({"http": http} if http else {}), "dashboard": link})


def place_of(home: Path | None) -> Path:
    """The state directory of a new mesh: as given, or here."""
    return (home or Path.cwd() / ".antiphon").resolve()
