"""Looking up a job by the beginning of its id or by its alias, and what the shell completes.

Completion reads the local replica, without connecting.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.exits import WrongUsage

if TYPE_CHECKING:
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Job, Mesh

SHOWN: Final = 4
OFFERED: Final = 32
LOOKED_AT: Final = 200


def complete_job(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Job ids that begin with this, newest first, each with its kind and state."""
    jobs = [job for job in _recent(context) if job.id.startswith(incomplete)]
    return [(job.id[:12], f"{job.kind} {job.state.value}") for job in jobs[:OFFERED]]


def complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    """Kinds of recent jobs."""
    kinds = {job.kind for job in _recent(context)}
    return sorted(kind for kind in kinds if kind.startswith(incomplete))


def complete_right(incomplete: str) -> list[str]:
    """What can be granted."""
    from antiphon.sdk.authority.delegation import right_words

    return [word for word in right_words() if word.startswith(incomplete)]


def _recent(context: typer.Context) -> list[Job]:
    home = context.params.get("home")
    try:
        from antiphon.sdk.jobs.job_lookup import recent_jobs

        return recent_jobs(Path(home) if home else None, limit=LOOKED_AT)
    except Exception:  # noqa: BLE001 - completion must never print an error
        return []


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="A job's id, enough of its first digits to be unique, or its ULID.",
        show_default=False,
        autocompletion=complete_job,
    ),
]


async def find_any(mesh: Mesh, text: str) -> Job | LaneKey:
    """The job whose id begins with this, or else the other thing on the log with this name."""
    from antiphon.sdk.jobs.job_lookup import is_id

    if is_id(text):
        try:
            return await find_job(mesh, text)
        except Rejected as refused:
            other = await _find_other(mesh, text) if refused.reason == "no_job" else None
            if other is None:
                raise
            return other
    return await _find_other(mesh, text) or await find_job(mesh, text)


async def _find_other(mesh: Mesh, name: str) -> LaneKey | None:
    """The one thing with this name that is not a job, if there is one."""
    from antiphon.sdk.lanes import find_lanes

    named = [key for key in await find_lanes(mesh, name.strip()) if key.family != "jobs"]
    exact = [key for key in named if key.name == name.strip()]
    found = exact or named
    if len(found) > 1:
        some = ", ".join(f"{key.name} ({key.family} {key.kind})" for key in found[:SHOWN])
        raise Rejected(
            f"several names begin with {name}: {some}",
            reason="ambiguous",
            hint="type more of the name",
        )
    return found[0] if found else None


async def find_job(mesh: Mesh, prefix: str) -> Job:
    """The one job with this alias, or whose id begins so; otherwise an error says what to type."""
    from antiphon.sdk.jobs import job_lookup

    if not job_lookup.is_id(prefix):
        raise WrongUsage(
            job_lookup.no_id(prefix),
            hint="antiphon jobs lists them; 'antiphon graph' prints those of its steps, and"
            " 'antiphon plan list' the newest of each plan",
        )
    return await job_lookup.find_job(mesh, prefix)
