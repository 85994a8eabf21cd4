"""`antiphon link JOB`: a link that shows one job to whoever has it, until a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.durations import seconds
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.terminal import err

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_S = 7_200.0


@command
async def link(
    home: Path | None,
    job: JobArgument,
    *,
    lasts: float = typer.Option(
        DEFAULT_S,
        "--for",
        parser=seconds,
        metavar="TIME",
        show_default="2h",
        help="How long it works: 30m, 2h, 7d; at most 30d.",
    ),
    outputs: bool = typer.Option(
        False, "--outputs", help="Show what the job wrote and prints, too, and its bundle."
    ),
    at: str = typer.Option(
        "http://127.0.0.1:7464", metavar="URL", help="Where a node serves --http."
    ),
) -> Answer:
    """Print a link that shows a job to somebody who is no member.

    It opens this job's story and proof, and nothing else, until its time is over. Whoever has it
    can use it, so send it as you would send a password. Revoking this machine ends it, too.

    \b
      antiphon link 3f9a --for 2h
      antiphon link 3f9a --for 7d --outputs --at https://mesh.example
    """  # noqa: D301 - \b keeps the lines apart
    from antiphon.sdk.hosting.strongest_key import with_authority
    from antiphon.sdk.http.job_links import make_link

    async with with_authority(home) as mesh:
        found = await find_job(mesh, job)
        made = make_link(mesh, found, lasts=lasts, outputs=outputs)
    url = f"{at.rstrip('/')}{made.path}"

    def words() -> None:
        print(url, flush=True)
        err.say(f"  {found.kind} {found.id[:8]}, until {made.until}")

    return Answer({"link": url, "token": made.token, "job": made.job, "until": made.until}, words)
