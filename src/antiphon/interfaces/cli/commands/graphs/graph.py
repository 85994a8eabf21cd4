"""`antiphon graph FILE`: submits a graph of commands, and waits for it if told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
)
from antiphon.interfaces.cli.screen.terminal import counted, err, out, span, state_piece

if TYPE_CHECKING:
    from antiphon.sdk.graphs.graph_file import FileStep
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="Steps in YAML or JSON: docs/graphs.md.", show_default=False
    ),
]


def graph(
    file: FileArgument,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Wait until every step has ended.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Submit a graph of commands: each step begins when those that it needs have ended.

    The file is checked before anything is sent. Prints each step with its job's id; with --wait
    each step as it ends, and the exit code is 1 if one of them has not succeeded.

    \b
    Example:
      antiphon graph release.yaml --wait
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.graphs.graph_file import read_graph

    steps = read_graph(file)
    return command_loop.run(_graph(open_mesh(home), steps, wait=wait, as_json=as_json))


async def _graph(mesh: Mesh, steps: list[FileStep], *, wait: bool, as_json: bool) -> int:
    from antiphon.sdk.graphs.graph_file import add_to

    async with mesh:
        async with mesh.graph() as made:
            added = add_to(made, steps)
        handles = {name: made.handle(step) for name, step in added.items()}
        if not as_json:
            _tell(steps, handles)
        ended = await _wait(handles, is_silent=as_json) if wait else {}
    if as_json:
        print_json({"steps": [_object(one, handles[one.name], ended) for one in steps]})
    elif not wait:
        last = handles[steps[-1].name]
        err.pieces((f"antiphon show {short(last.id)} draws it", "quiet"))
    failed = sum(outcome != "succeeded" for outcome in ended.values())
    if failed and not as_json:
        err.pieces((f"{failed} of {counted(len(steps), 'step')} did not succeed", "failed"))
    return Exit.FAILED if failed else Exit.OK


def _tell(steps: list[FileStep], handles: dict[str, JobHandle[None]]) -> None:
    rows = [
        [
            (one.name, "strong"),
            (short(handles[one.name].id), ""),
            (one.kind, "quiet"),
            (f"after {', '.join(one.before)}" if one.before else "now", "quiet"),
        ]
        for one in steps
    ]
    out.table(("STEP", "JOB", "KIND", "BEGINS"), rows, flexible=3)


async def _wait(handles: dict[str, JobHandle[None]], *, is_silent: bool) -> dict[str, str]:
    """How each step ended, told as it ends."""
    from antiphon.sdk.many.bound_calls import as_completed

    names = {(one.kind, one.id): name for name, one in handles.items()}
    wide = max(map(len, handles), default=0)
    outcomes: dict[str, str] = {}
    async for handle in as_completed(handles.values()):
        ended = await handle.end()
        job = ended.job
        name = names[handle.kind, handle.id]
        outcomes[name] = job.outcome
        if is_silent:
            continue
        why = ended.error.message if ended.error is not None else _named(ended.reason, handles)
        took = span((job.ended_ms - (job.offered_ms or job.scheduled_ms)) / 1000)
        mark, style = state_piece(job.state.value)
        out.pieces(
            (f"{mark:<12}", style), (f"{name:<{wide}}  ", "strong"), (f"{took}  {why}", "quiet")
        )
    return outcomes


def _named(why: str, handles: dict[str, JobHandle[None]]) -> str:
    """The coordinator's reason with the step's name instead of its job."""
    for name, one in handles.items():
        at = why.find(f"{one.kind} {one.id[:8]}")
        if at >= 0:
            return f"because {name} {why[at:].partition(' ')[2].partition(' ')[2]}"
    return why


def _object(step: FileStep, handle: JobHandle[None], ended: dict[str, str]) -> dict[str, Any]:
    found = {"step": step.name, "kind": step.kind, "job": handle.id, "after": list(step.before)}
    return {**found, "outcome": ended[step.name]} if ended else found
