"""`antiphon get JOB [NAME]`: downloads the outputs of a job, and checks their digests."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.command import Answer, Told, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.progress import Progress, size_words
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.wait import output_object

if TYPE_CHECKING:
    from antiphon.sdk.artifacts.namespace import Output
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

STDOUT = Path("-")


@command
async def get(
    home: Path | None,
    as_json: bool,
    job: JobArgument,
    name: str | None = typer.Argument(
        None, metavar="[NAME]", help="One output. Default: all outputs."
    ),
    *,
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        metavar="PATH",
        help="A directory for all outputs, a file for one, - for standard output."
        " Default: a directory named after the job; for one output, this directory.",
    ),
) -> Told:
    """Download the outputs of a job.

    Each file is checked against the digests in the job's completion before it gets its name.
    """
    if output == STDOUT and as_json:
        raise WrongUsage("-o - and --json cannot be combined", hint="leave out one of them")
    if output is None:
        output = Path(short(job)) if name is None else Path()
    is_folder = await asyncio.to_thread(output.is_dir)
    async with open_mesh(home) as mesh:
        found = await find_job(mesh, job)
        handle = mesh.job(found.kind, found.id)
        if output == STDOUT:
            await _write_out(mesh, handle, name)
            return None
        if name is None:
            written = await _fetch_all(mesh, handle, output)
        else:
            written = [await _fetch_one(mesh, handle, name, output, is_folder=is_folder)]

    def words() -> None:
        for made, path in written:
            out.say(f"{path}  {size_words(made.size)}")

    files = [{**output_object(made), "file": str(path)} for made, path in written]
    return Answer({"job": found.id, "kind": found.kind, "files": files}, words)


async def _fetch_all(
    mesh: Mesh, handle: JobHandle[Any], directory: Path
) -> list[tuple[Output, Path]]:

    progress = Progress(short(handle.id))
    try:
        written = await mesh.artifacts.fetch_all(handle, directory, on_progress=progress)
    finally:
        progress.end()
    if not written:
        raise _nothing(handle)
    return written


async def _fetch_one(
    mesh: Mesh, handle: JobHandle[Any], name: str, output: Path, *, is_folder: bool
) -> tuple[Output, Path]:
    from antiphon.sdk.artifacts.namespace import output_named

    made = await output_named(handle, name)
    progress = Progress(made.name)
    try:
        if is_folder:
            fetch = mesh.artifacts.fetch_below
            return made, await fetch(made, output, of=handle, on_progress=progress)
        await mesh.artifacts.fetch(made, output, of=handle, on_progress=progress)
        return made, output
    finally:
        progress.end()


async def _write_out(mesh: Mesh, handle: JobHandle[Any], name: str | None) -> None:
    from antiphon.sdk.artifacts.namespace import output_named

    if name is not None:
        made = await output_named(handle, name)
    else:
        outputs = await handle.outputs()
        if not outputs:
            raise _nothing(handle)
        if len(outputs) > 1:
            raise WrongUsage(
                f"job {short(handle.id)} has {len(outputs)} outputs: which one?",
                hint=f"antiphon get {short(handle.id)} NAME -o -",
            )
        made = outputs[0]
    async for chunk in mesh.artifacts.stream(made, of=handle):
        sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()
    err.pieces((f"{made.name}: {size_words(made.size)}, digests match", "quiet"))


def _nothing(handle: JobHandle[Any]) -> Rejected:
    return Rejected(
        f"job {short(handle.id)} has no outputs",
        reason="no_output",
        hint=f"antiphon show {short(handle.id)}",
    )
