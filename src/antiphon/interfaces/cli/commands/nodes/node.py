"""`antiphon node`: a full node: verifies every record, keeps the replica, ends expired leases."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

from antiphon.errors import Held
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    load_settings,
    open_mesh,
    print_json,
    short_node,
)
from antiphon.interfaces.cli.screen.terminal import counted, out


def node(home: HomeOption = None, *, as_json: JsonOption = False) -> int:
    """Run a full node.

    Verifies every record, keeps the replica that 'jobs' and 'show' read, ends expired leases, and
    offers jobs again that no worker claimed.
    """

    async def serve(stop: command_loop.Stop) -> int:
        return await _serve(home, stop, as_json=as_json)

    return command_loop.run_service(serve)


async def _serve(home: Path | None, stop: command_loop.Stop, *, as_json: bool) -> int:
    load_settings()
    mesh = open_mesh(home)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(mesh)
        try:
            running = await stack.enter_async_context(mesh.node())
        except Held as held:
            raise Held(
                f"another process uses the replica in {mesh.home.path}",
                hint="one full node per state directory is enough; 'antiphon nodes' shows it",
            ) from held
        did = running.did
        if as_json:
            ready = {"event": "ready", "node": did, "applied": running.applied}
            print_json({**ready, "mesh": mesh.id, "pid": os.getpid()})
        else:
            out.say(
                f"node {short_node(did)} on mesh {mesh.id} has verified"
                f" {counted(running.applied, 'record')} and follows the log; Ctrl-C stops it"
            )
        await stop.wait()
    if as_json:
        print_json({"event": "stopped", "applied": running.applied})
    else:
        out.say(f"stopped at record {running.applied:,}")
    return Exit.OK
