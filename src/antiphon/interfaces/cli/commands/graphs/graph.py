"""`antiphon graph FILE`: submits a graph of commands, and waits for it if told to."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.errors import NobodyAnswers
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.terminal import counted, err, out, span, state_piece
from antiphon.interfaces.cli.shared.job_options import DetachOption

if TYPE_CHECKING:
    from antiphon.sdk.graphs.graph_file import FileStep
    from antiphon.sdk.handle import JobHandle

FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The steps, in YAML or JSON.", show_default=False),
]


@command
async def graph(
    home: Path | None, as_json: bool, file: FileArgument, *, detach: DetachOption = False
) -> Answer:
    """Submit a graph: commands that begin when others have ended.

    The file is checked before anything is sent. Prints each step with its job's id, then each as
    it ends. The exit code is 1 if one of them has not succeeded.

    \b
    A file of steps, and how to submit it:
      kind: ci
      steps:
        build: {command: [make], inputs: {src.tar: src.tar}, outputs: [app]}
        test: {command: [./test.sh], inputs: {app: {step: build}}}
        tell: {command: [echo, done], needs: [test]}
    \b
      antiphon graph release.yaml
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.graphs.graph_file import add_to, read_graph

    steps = read_graph(file)
    async with open_mesh(home) as mesh:
        async with mesh.graph() as made:
            added = add_to(made, steps)
        handles = {name: made.handle(step) for name, step in added.items()}
        if not as_json:
            _tell(steps, handles)
        ended = {} if detach else await _wait(handles, is_silent=as_json)
    failed = sum(outcome != "succeeded" for outcome in ended.values())

    def words() -> None:
        if detach:
            last = handles[steps[-1].name]
            err.pieces((f"antiphon show {short(last.id)} draws it", "quiet"))
        if failed:
            err.pieces((f"{failed} of {counted(len(steps), 'step')} did not succeed", "failed"))

    facts = {"steps": [_object(one, handles[one.name], ended) for one in steps]}
    return Answer(facts, words, Exit.FAILED if failed else Exit.OK)


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
    with _unanswered_is_said(is_silent=is_silent):
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


@contextmanager
def _unanswered_is_said(*, is_silent: bool) -> Iterator[None]:
    """Say that nobody can run a step, and what becomes of the steps if the wait is ended."""

    def say(message: Warning | str, *_: object, **__: object) -> None:
        err.hanging([("waiting: ", "strong")], [(str(message), "")])

    with warnings.catch_warnings():
        if not is_silent:
            warnings.simplefilter("always", NobodyAnswers)
            warnings.showwarning = say
        try:
            yield
        except asyncio.CancelledError:
            if not is_silent:
                err.say("")
                err.say("the steps stay on the mesh and go on; antiphon jobs lists them")
            raise


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
