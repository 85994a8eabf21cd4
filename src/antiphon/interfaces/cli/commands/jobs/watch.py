"""`antiphon watch`: one line per record as it is written, with its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
)
from antiphon.interfaces.cli.screen.terminal import GLYPHS, STYLES, Piece, clock, err, out

if TYPE_CHECKING:
    import asyncio

    from antiphon.sdk.mesh import Event, Mesh


def watch(home: HomeOption = None, *, as_json: JsonOption = False) -> int:
    """Follow the mesh live.

    One line for each record: what happened, to which job, and whether it was accepted. On a
    terminal the last line shows the progress that running jobs report.
    """

    async def serve(stop: command_loop.Stop) -> int:
        return await _watch(home, stop, as_json=as_json)

    return command_loop.run_service(serve)


async def _watch(home: Path | None, stop: command_loop.Stop, *, as_json: bool) -> int:
    import asyncio

    mesh = open_mesh(home)
    async with mesh, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(mesh, as_json=as_json))
        tasks.create_task(_end_with(stop, following))
    return Exit.OK


async def _end_with(stop: command_loop.Stop, following: asyncio.Task[None]) -> None:
    await stop.wait()
    following.cancel()


async def _follow(mesh: Mesh, *, as_json: bool) -> None:
    from antiphon.interfaces.cli.commands.jobs.progress_line import Progressing

    async with mesh.watching() as batches, Progressing(mesh) as progress:
        if not as_json:
            err.pieces((f"watching mesh {mesh.id}; Ctrl-C stops it", "quiet"))
        async for batch in batches:
            if as_json:
                for event in batch:
                    print_json(event_object(event))
                continue
            err.erase()
            for event in batch:
                say_event(event)
                progress.note(event)
            progress.show()


def say_event(event: Event) -> None:
    """Print one event as a line."""
    if not event.verdict.is_accepted:
        mark: Piece = ("✗ ", "failed")
    elif event.state in STYLES and event.state:
        mark = (f"{GLYPHS[event.state]} ", event.state)
    else:
        mark = ("· ", "")
    subject = f"{short(event.job_id)} {event.kind}  " if event.job_id else "mesh  "
    out.hanging(
        [(f"{clock(event.at_ms)} ", "quiet"), mark], [(subject, "strong"), (event.words, "")]
    )


def event_object(event: Event) -> dict[str, object]:
    """One event as JSON."""
    return {
        "seq": event.seq,
        "at_ms": event.at_ms,
        "op": event.op,
        "family": event.family,
        "kind": event.kind,
        "job": event.job_id,
        "author": event.author,
        "verdict": event.verdict.value,
        "accepted": event.verdict.is_accepted,
        "state": event.state,
        "words": event.words,
    }
