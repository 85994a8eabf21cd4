"""`antiphon cancel JOB`: cancels a job that has not ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.jobs.jobs import job_object
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import err, out, state_piece

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh


@command
async def cancel(
    mesh: Mesh,
    job: JobArgument,
    *,
    reason: str = typer.Option("", help="Why; 'antiphon show' prints it."),
) -> Answer:
    """Cancel a job that has not ended."""
    found = await find_job(mesh, job)
    ended = await mesh.job(found.kind, found.id).cancel(reason)
    name, is_cancelled = f"{ended.kind} {short(ended.id)}", ended.outcome == "cancelled"

    def words() -> None:
        if is_cancelled:
            out.pieces(state_piece("aborted"), (f"  {name} is cancelled", ""))
        else:
            err.say(f"{name} has already ended: {ended.outcome}")

    facts = {**job_object(ended), "cancelled": is_cancelled}
    return Answer(facts, words, Exit.OK if is_cancelled else Exit.CONFLICT)
