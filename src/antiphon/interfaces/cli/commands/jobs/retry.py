"""`antiphon retry JOB`: submits a job again that ended without a result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_job, complete_kind, find_job
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.sdk.defaults import DEAD_LETTERS_MAX

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Job, Mesh


@command
async def retry(
    home: Path | None,
    job: str | None = typer.Argument(
        None,
        metavar="JOB",
        help="A job's id, enough of its first digits to be unique, or its ULID.",
        show_default=False,
        autocompletion=complete_job,
    ),
    *,
    all_failed: bool = typer.Option(
        False, "--all-failed", help="Every job that failed or expired and was not retried."
    ),
    kind: str = typer.Option(
        "",
        help="With --all-failed: only this kind and kinds below it.",
        autocompletion=complete_kind,
    ),
    limit: int = typer.Option(
        100, min=1, max=DEAD_LETTERS_MAX, help="With --all-failed: at most this many."
    ),
) -> Answer:
    """Retry jobs that ended without a result.

    Each becomes a new job that is linked to the old one; an ended job is never reopened. A job
    that was already retried is not retried again.
    """
    if (job is None) == (not all_failed):
        raise WrongUsage(
            "give either JOB or --all-failed", hint="antiphon jobs --failed lists such jobs"
        )
    if kind and not all_failed:
        raise WrongUsage("--kind needs --all-failed", hint="leave out --kind")
    async with open_mesh(home) as mesh:
        chosen = await _chosen(mesh, job, kind, limit)
        retried = [(found, await mesh.job(found.kind, found.id).retry()) for found in chosen]

    def words() -> None:
        for found, handle in retried:
            if handle.is_new:
                out.say(handle.id)
                err.say(f"  {found.kind} {short(found.id)} is retried as {short(handle.id)}")
            else:
                err.say(f"{found.kind} {short(found.id)} was already retried as {short(handle.id)}")
        if not retried:
            err.say("nothing to retry" + (f" in {kind}" if kind else ""))

    facts = [
        {"job": handle.id, **fields(handle, "kind", "is_new"), "retry_of": found.id}
        for found, handle in retried
    ]
    return Answer({"retried": facts}, words)


async def _chosen(mesh: Mesh, prefix: str | None, kind: str, limit: int) -> list[Job]:
    if prefix is not None:
        return [await find_job(mesh, prefix)]
    from antiphon.sdk.dead_letters import retryable

    async with mesh.replica() as replica:
        return retryable(mesh, replica, kind=kind, limit=limit)
