"""`antiphon node`: a full node: verifies every record, keeps the replica, ends expired leases."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.http_options import (
    HttpOptions,
    http_address,
    say_dashboard,
    say_http,
    serve_dashboard,
    serve_http,
)
from antiphon.interfaces.cli.screen.options import load_settings, open_mesh, print_json, short_node
from antiphon.interfaces.cli.screen.terminal import counted, out


@command
async def node(home: Path | None, as_json: bool, stop: Stop, *, http: HttpOptions) -> Answer:
    """Run a full node.

    Verifies every record, keeps the replica that 'jobs' and 'show' read, ends expired leases, and
    offers jobs again that no worker claimed. With --http it also prints a link to the dashboard,
    which this machine alone can open.
    """
    settings = load_settings()
    address = http_address(http, settings)
    async with open_mesh(home) as mesh, AsyncExitStack() as stack:
        running = await stack.enter_async_context(mesh.node())
        where, link, name = "", "", mesh.home.mesh().name
        if address is not None:
            where = await serve_http(stack, (settings, address), mesh, running)
            link = await serve_dashboard(stack, mesh, name, running, must=True, as_json=as_json)
        if as_json:
            ready = {"event": "ready", "node": running.did, "applied": running.applied}
            served = {"http": where, "dashboard": link} if where else {}
            print_json({**ready, "mesh": mesh.id, "pid": os.getpid(), **served})
        else:
            out.say(
                f"node {short_node(running.did)} on mesh {mesh.id} has verified"
                f" {counted(running.applied, 'record')} and follows the log; Ctrl-C stops it"
            )
            if where:
                say_http(mesh, where, settings, further=", /v1/tempo")
                say_dashboard(link)
        await stop.wait()
    return Answer(
        {"event": "stopped", "applied": running.applied},
        lambda: out.say(f"stopped at record {running.applied:,}"),
    )
