"""Looking up a job by the beginning of its id, or by its alias."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.completion import complete_job
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import short

if TYPE_CHECKING:
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Job, Mesh

_JOB: Final = re.compile(r"[0-9a-f]{1,64}|[0-7][0-9a-hjkmnp-tv-z]{25}", re.ASCII)
"""Digits of an id, or an alias: a ULID."""
SHOWN: Final = 4

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
    if _JOB.fullmatch(text.strip().lower().removeprefix("blake3:")):
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
    wanted = prefix.strip().lower().removeprefix("blake3:")
    if not _JOB.fullmatch(wanted):
        raise WrongUsage(
            f"{prefix!r} is not a job id: ids are hexadecimal digits, aliases are ULIDs",
            hint="antiphon jobs lists them; 'antiphon graph' prints those of its steps, and"
            " 'antiphon plan list' the newest of each plan",
        )
    async with mesh.replica() as replica:
        found = replica.find(wanted)
    if not found:
        raise Rejected(
            f"no job on this mesh has an id that begins with {short(wanted)}, or that alias",
            reason="no_job",
            hint="antiphon jobs lists the newest",
        )
    if len(found) > 1:
        some = ", ".join(f"{job.id[:12]} ({job.kind})" for job in found[:SHOWN])
        more = "" if len(found) <= SHOWN else ", …"
        raise Rejected(
            f"several jobs begin with {short(wanted)}, or have that alias: {some}{more}",
            reason="ambiguous",
            hint="type more of the id",
        )
    return found[0]
