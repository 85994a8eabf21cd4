"""`antiphon cancel JOB`: cancels a job that has not ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiphon.interfaces.cli.commands.jobs.jobs import job_object
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
)
from antiphon.interfaces.cli.screen.terminal import err, out, state_piece


def cancel(
    job: JobArgument,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; 'antiphon show' prints it.")] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Cancel a job that has not ended."""
    return command_loop.run(_cancel(job, reason, home, as_json=as_json))


async def _cancel(prefix: str, reason: str, home: Path | None, *, as_json: bool) -> int:
    mesh = open_mesh(home)
    async with mesh:
        found = await find_job(mesh, prefix)
        ended = await mesh.job(found.kind, found.id).cancel(reason)
    is_cancelled = ended.outcome == "cancelled"
    if as_json:
        print_json({**job_object(ended), "cancelled": is_cancelled})
    elif is_cancelled:
        out.pieces(state_piece("aborted"), (f"  {ended.kind} {short(ended.id)} is cancelled", ""))
    else:
        err.say(f"{ended.kind} {short(ended.id)} has already ended: {ended.outcome}")
    return Exit.OK if is_cancelled else Exit.CONFLICT
