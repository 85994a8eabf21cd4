"""`antiphon dev`: a whole mesh in one process, for trying things out.

Starts its own server, creates a mesh (or continues the one in this directory), runs a full node
and a worker, prints what happens, and stops everything at the end.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from antiphon.interfaces.cli.commands.jobs.watch import Ticker
from antiphon.interfaces.cli.commands.nodes.worker import chosen_home, say_draining
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.http_options import say_dashboard, serve_dashboard
from antiphon.interfaces.cli.screen.options import load_settings, print_json
from antiphon.interfaces.cli.screen.terminal import counted, out
from antiphon.interfaces.cli.shared.command_offers import Offered, OfferOptions, SlotsOption
from antiphon.sdk.defaults import COMMAND_KIND

if TYPE_CHECKING:
    from antiphon.sdk.hosting.dev_mesh import Development
    from antiphon.sdk.mesh import Mesh, StateDirectory

SEAL_EVERY_S: Final = 2.0
"""Who tries things out exports a bundle at once, and should not wait for a seal."""


@command
async def dev(
    home: Path | None,
    as_json: bool,
    stop: Stop,
    *,
    name: str = typer.Option("", help="A name for a new mesh. Default: the directory's name."),
    slots: SlotsOption = None,
    tasks: str = typer.Option("", metavar="MODULE", help="Run the tasks of this module instead."),
    commands: OfferOptions,
) -> Answer:
    """Run a whole mesh here, to try things out.

    Starts its own server, creates a mesh or continues the one in this directory, and runs a full
    node and a worker with a few example tasks. The worker also runs commands of the kind
    'command', if this machine can sandbox them.
    """
    from antiphon.sdk.hosting.dev_mesh import development
    from antiphon.sdk.log_watch import event_of

    where = chosen_home(home)
    offer = commands.offered(COMMAND_KIND)
    settings = load_settings()
    missing = ""
    async with AsyncExitStack() as stack:
        known_as = name or where.parent.name or "antiphon"
        mesh = _mesh_with_tasks(where, tasks)
        running = await stack.enter_async_context(development(where, name=known_as))
        stop.last_acts.append(running.kill_server)
        if not offer.kinds:
            offer, missing = await _usual_offer(running.home)
        await stack.enter_async_context(mesh)
        node = await stack.enter_async_context(mesh.node(seal_every_s=SEAL_EVERY_S))
        await running.coordinate(node)
        worker = await stack.enter_async_context(mesh.worker(slots=slots, **offer.for_worker))
        before = sum(node.replica.sizes.by_state().values())
        link = await serve_dashboard(
            stack, mesh, running.mesh.name, node, is_service=False, as_json=as_json
        )
        if as_json:
            _print_ready(running, worker.kinds, link)
        else:
            _greet(running, mesh, slots or settings.slots, before)
            _say_commands(offer, missing)
            say_dashboard(link)
            _say_next(running, mesh, offer)
            show = Ticker()
            node.watchers.append(lambda applied: show.event(event_of(applied)))
        async with asyncio.TaskGroup() as group:
            supervision = group.create_task(running.supervise())
            await stop.wait()
            supervision.cancel()
        say_draining(worker.held, settings.drain_s, as_json=as_json)
    return Answer(
        {"event": "stopped", "done": worker.done},
        lambda: out.say(f"stopped. 'antiphon dev' starts this mesh again; it stays in {where}"),
    )


def _mesh_with_tasks(where: Path, tasks: str) -> Mesh:
    from antiphon.sdk.mesh import Mesh

    if tasks:
        from antiphon.interfaces.cli.shared.task_modules import find_mesh

        os.environ["ANTIPHON_HOME"] = str(where)  # so that the module's Mesh.open() finds it
        return find_mesh(tasks)
    from antiphon.interfaces.cli.shared.demo_tasks import add_tasks

    mesh = Mesh.open(home=where, role="dev")
    add_tasks(mesh)
    return mesh


async def _usual_offer(home: StateDirectory) -> tuple[Offered, str]:
    """The kind `command`, if this machine can sandbox commands; otherwise nothing, and why."""
    from antiphon.sdk.command_job import sandbox_status

    able, why, remedy = await asyncio.to_thread(sandbox_status, home)
    if able:
        return Offered((COMMAND_KIND,)), ""
    return Offered(), f"{why}; {remedy}" if remedy else why


def _print_ready(running: Development, kinds: list[str], link: str) -> None:
    about = {"event": "ready", "mesh": running.mesh.mesh, **fields(running.mesh, "name", "engine")}
    here = {"home": str(running.home.path), "kinds": kinds, "pid": os.getpid(), "dashboard": link}
    print_json({**about, **here, **fields(running, "is_new", "server_pid")})


def _greet(running: Development, mesh: Mesh, slots: int, before: int) -> None:
    """Print what is running."""
    described = running.mesh
    news = "new" if running.is_new else f"continued, {counted(before, 'job')} on it"
    out.pieces(
        ("antiphon dev", "strong"), (f"  mesh {described.name!r} ({described.mesh}), {news}", "")
    )
    out.say(f"  state    {running.home.path}")
    out.say(f"  engine   {described.engine}, every write synced to disk")
    out.say(f"  runs     {', '.join(mesh.kinds)} ({counted(slots, 'slot')})")
    out.say("  open     everyone who can read that state directory may submit and claim jobs:")
    out.say("           use it for development only")


def _say_commands(offer: Offered, missing: str) -> None:
    if offer.kinds:
        terms = offer.in_words or ", in a sandbox, without the network"
        out.say(f"  commands {', '.join(offer.kinds)}{terms}")
    else:
        out.hanging([("  commands ", "")], [(f"none: {missing}", "")])


def _say_next(running: Development, mesh: Mesh, offer: Offered) -> None:
    out.say("")
    here = running.home.path == Path.cwd() / ".antiphon"
    if here:
        out.say("In another terminal, in this directory:")
    else:
        out.say("In another terminal:")
        out.say(f"  export ANTIPHON_HOME={shlex.quote(str(running.home.path))}")
    first = mesh.kinds[0]
    example = "example.add 2 3" if first == "example.add" else f"{first} …"
    out.say(f"  antiphon submit {example}")
    if offer.kinds:
        kind = "" if COMMAND_KIND in offer.kinds else f"--kind {offer.kinds[0]} "
        out.say(f"  antiphon run {kind}-- sh -c 'echo hello'")
    out.say("  antiphon jobs")
    out.say("  antiphon show JOB        with the first digits of a job's id")
    out.say("  antiphon watch")
    out.say("")
    out.pieces(("Ctrl-C stops it; the log is kept. Jobs appear below.", "quiet"))
