"""`antiphon worker MODULE`: answer calls for the tasks of a module until told to stop."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from antiphon.interfaces.cli import life
from antiphon.interfaces.cli.exits import Exit
from antiphon.interfaces.cli.modules import find_mesh
from antiphon.interfaces.cli.options import (
    HomeOption,
    JsonOption,
    load_settings,
    print_json,
    short_node,
)
from antiphon.interfaces.cli.terminal import counted, err, out


def worker(
    module: Annotated[
        str,
        typer.Argument(
            metavar="MODULE",
            help="A dotted name or a path to a .py file; with :NAME to pick one of its meshes.",
            show_default=False,
        ),
    ],
    *,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Jobs at the same time. Default: 8.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Answer calls for a module's tasks.

    The first Ctrl-C or SIGTERM finishes or gives back what is in hand; the second ends at once.
    """
    if home is not None:
        os.environ["ANTIPHON_HOME"] = str(home)  # so that the module's Mesh.open() finds it

    async def serve(stop: life.Stop) -> int:
        return await _work(module, slots, stop, as_json=as_json)

    return life.run_service(serve)


async def _work(module: str, slots: int | None, stop: life.Stop, *, as_json: bool) -> int:
    settings = load_settings()
    mesh = find_mesh(module)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(mesh)
        working = await stack.enter_async_context(mesh.worker(slots=slots))
        did = working.peer.author.did
        if as_json:
            print_json({"event": "ready", "node": did, "kinds": mesh.kinds, "pid": os.getpid()})
        else:
            out.say(
                f"worker {short_node(did)} on mesh {mesh.id} answers {', '.join(mesh.kinds)}"
                f" ({counted(slots or settings.slots, 'slot')}); Ctrl-C stops it"
            )
        await stop.wait()
        say_draining(working.busy, settings.drain_s, as_json=as_json)
    if as_json:
        print_json({"event": "stopped", "done": working.done})
    else:
        out.say(f"stopped after {counted(working.done, 'job')}")
    return Exit.OK


def say_draining(busy: int, drain_s: float, *, as_json: bool) -> None:
    """Tell the person what the stop waits for."""
    if as_json:
        return
    if busy:
        err.say(
            f"stopping: {counted(busy, 'job')} in hand may finish within {drain_s:g} s;"
            " again to end at once"
        )
    else:
        err.say("stopping")


def chosen_home(home: Path | None) -> Path:
    """Where a new mesh would live: as asked, where one already is, or right here."""
    from antiphon.errors import Misconfigured
    from antiphon.sdk.mesh import Home

    try:
        return Home.find(home).path.resolve()
    except Misconfigured:
        return Path.cwd() / ".antiphon"
