"""`antiphon up`: hosts a mesh: its server, its gate and a full node."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.interfaces.cli.commands.jobs.watch import Ticker
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
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
    from antiphon.sdk.hosting.hosted_mesh import Hosting
    from antiphon.settings import HttpAddress, Settings


@command
async def up(home: Path | None, as_json: bool, stop: Stop, *, http: HttpOptions) -> Answer:
    """Host the mesh that 'antiphon init' created here.

    Runs its server, the gate through which machines join, and a full node that verifies every
    record. Prints a link to the dashboard, which this machine alone can open.
    """
    from antiphon.sdk.hosting.hosted_mesh import host
    from antiphon.sdk.mesh import StateDirectory

    settings = load_settings()
    address = http_address(http, settings)
    async with host(StateDirectory.find(home).path.resolve()) as hosting:
        if not as_json:
            _greet(hosting)
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
    print_json({**about, **here, **({"http": http} if http else {}), "dashboard": link})


def place_of(home: Path | None) -> Path:
    """The state directory of a new mesh: as given, or here."""
    return (home or Path.cwd() / ".antiphon").resolve()
