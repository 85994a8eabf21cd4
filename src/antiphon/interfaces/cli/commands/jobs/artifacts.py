"""`antiphon artifacts [JOB]`: lists the outputs of jobs: size, digest, where, until when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.commands.jobs.get import output_object
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.completion import complete_job
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.lookup import find_job
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    open_mesh,
    print_json,
    short,
)
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import Piece, err, moment, out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Job, Mesh
    from antiphon.sdk.results.artifacts import Artifact

DIGITS = 12
"""Digits of a digest that are shown."""


def artifacts(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="A job's id, or its first digits. Default: the newest jobs that ended.",
            show_default=False,
            autocompletion=complete_job,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="With --evict: only this output.", show_default=False
        ),
    ] = None,
    *,
    evict: Annotated[
        bool, typer.Option("--evict", help="Delete the bytes; the log keeps their digest.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Look at this many jobs at most.")
    ] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the outputs of jobs.

    Prints name, size, digest, where the bytes are, and until when. The mesh keeps them for the
    time set by the rule artifact_ttl_ms.
    """
    if evict and job is not None:
        return command_loop.run(_evict(job, name, home, as_json=as_json))
    if evict or name is not None:
        raise WrongUsage(
            "--evict needs a job, and NAME needs --evict",
            hint="antiphon artifacts --evict JOB [NAME], or antiphon get JOB [NAME]",
        )
    return command_loop.run(_artifacts(job, limit, home, as_json=as_json))


async def _artifacts(prefix: str | None, limit: int, home: Path | None, *, as_json: bool) -> int:
    from antiphon.sdk.results.artifacts import artifacts_of

    async with open_mesh(home) as mesh:
        jobs = await _ended(mesh, limit) if prefix is None else [await find_job(mesh, prefix)]
        found = await artifacts_of(mesh, [mesh.job(job.kind, job.id) for job in jobs])
    if as_json:
        print_json({"artifacts": [_object(one) for one in found]})
    elif found:
        heads = ("JOB", "NAME", "SIZE", "BLAKE3", "WHERE", "UNTIL")
        out.table(heads, [_row(one) for one in found], flexible=1)
    else:
        out.say("no artifacts" if prefix is None else f"job {short(jobs[0].id)} has no outputs")
    return Exit.OK


async def _evict(prefix: str, name: str | None, home: Path | None, *, as_json: bool) -> int:
    from antiphon.sdk.results.artifacts import evict

    async with open_mesh(home) as mesh:
        job = await find_job(mesh, prefix)
        gone = await evict(mesh, mesh.job(job.kind, job.id), name)
    if as_json:
        told = [output_object(output) for output in gone]
        print_json({"job": job.id, "kind": job.kind, "evicted": told})
    elif gone:
        for output in gone:
            out.pieces(("✓ ", "succeeded"), (output.name, "strong"), ("  is evicted", ""))
        err.say(
            "  the coordinator's node deletes the bytes within minutes, unless a job needs them"
        )
    else:
        out.say(f"job {short(job.id)} has nothing to evict")
    return Exit.OK


async def _ended(mesh: Mesh, limit: int) -> list[Job]:
    from antiphon.sdk.mesh import State

    async with mesh.replica() as replica:
        return replica.jobs(states=(State.SUCCEEDED, State.FAILED), limit=limit)


def _object(one: Artifact) -> dict[str, Any]:
    return {
        "job": one.job_id,
        "kind": one.kind,
        **output_object(one.output),
        "where": one.where,
        "until_ms": one.until_ms,
    }


def _row(one: Artifact) -> list[Piece]:
    made = one.output
    return [
        (short(one.job_id), ""),
        (made.name, "strong"),
        (size_words(made.size), ""),
        (made.hash.removeprefix("blake3:")[:DIGITS], "quiet"),
        (_WHERE[one.where], "" if one.where in {"record", "mesh"} else "quiet"),
        (moment(one.until_ms) if one.until_ms is not None else "", "quiet"),
    ]


_WHERE = {"record": "in its record", "mesh": "on the mesh", "evicted": "evicted", "gone": "gone"}
