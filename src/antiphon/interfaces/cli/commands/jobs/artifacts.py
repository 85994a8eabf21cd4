"""`antiphon artifacts [JOB]`: lists the outputs of jobs: size, digest, where, until when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_job, find_job
from antiphon.interfaces.cli.screen.options import open_mesh, short
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import Piece, err, moment, out
from antiphon.interfaces.cli.shared.wait import output_object

if TYPE_CHECKING:
    from antiphon.sdk.artifacts.namespace import Artifact
    from antiphon.sdk.mesh import Job, Mesh

DIGITS = 12
"""Digits of a digest that are shown."""


@command
async def artifacts(
    home: Path | None,
    job: str | None = typer.Argument(
        None,
        metavar="[JOB]",
        help="A job's id, or its first digits. Default: the newest jobs that ended.",
        show_default=False,
        autocompletion=complete_job,
    ),
    name: str | None = typer.Argument(
        None, metavar="[NAME]", help="With --evict: only this output.", show_default=False
    ),
    *,
    evict: bool = typer.Option(
        False, "--evict", help="Delete the bytes; the log keeps their digest."
    ),
    limit: int = typer.Option(20, min=1, help="Look at this many jobs at most."),
) -> Answer:
    """List the outputs of jobs.

    Prints name, size, digest, where the bytes are, and until when; and when it was made: the beat
    of its bar, as it was counted then, and the timestamp of the hybrid clock. The mesh keeps them
    for the time set by the rule artifact_ttl_ms.
    """
    if evict and job is not None:
        return await _evict(home, job, name)
    if evict or name is not None:
        raise WrongUsage(
            "--evict needs a job, and NAME needs --evict",
            hint="antiphon artifacts --evict JOB [NAME], or antiphon get JOB [NAME]",
        )

    async with open_mesh(home) as mesh:
        jobs = await _ended(mesh, limit) if job is None else [await find_job(mesh, job)]
        found = await mesh.artifacts.list([mesh.job(one.kind, one.id) for one in jobs])

    def words() -> None:
        if found:
            heads = ("JOB", "NAME", "SIZE", "BLAKE3", "WHERE", "UNTIL", "BEAT", "HLC")
            out.table(heads, [_row(one) for one in found], flexible=1)
        else:
            out.say("no artifacts" if job is None else f"job {short(jobs[0].id)} has no outputs")

    about = [
        {"job": one.job_id, **fields(one, *_FIELDS), **output_object(one.output)} for one in found
    ]
    return Answer({"artifacts": about}, words)


async def _evict(home: Path | None, prefix: str, name: str | None) -> Answer:

    async with open_mesh(home) as mesh:
        job = await find_job(mesh, prefix)
        gone = await mesh.artifacts.evict(mesh.job(job.kind, job.id), name)

    def words() -> None:
        for output in gone:
            out.pieces(("✓ ", "succeeded"), (output.name, "strong"), ("  is evicted", ""))
        if gone:
            err.say(
                "  the coordinator's node deletes the bytes within minutes, unless a job needs them"
            )
        else:
            out.say(f"job {short(job.id)} has nothing to evict")

    evicted = [output_object(output) for output in gone]
    return Answer({"job": job.id, "kind": job.kind, "evicted": evicted}, words)


async def _ended(mesh: Mesh, limit: int) -> list[Job]:
    from antiphon.sdk.jobs.job_lookup import ReplicaJobs
    from antiphon.sdk.mesh import State

    async with mesh.replica() as replica:
        return replica.ask(ReplicaJobs).jobs(states=(State.SUCCEEDED, State.FAILED), limit=limit)


def _row(one: Artifact) -> list[Piece]:
    made = one.output
    return [
        (short(one.job_id), ""),
        (made.name, "strong"),
        (size_words(made.size), ""),
        (made.hash.removeprefix("blake3:")[:DIGITS], "quiet"),
        (_WHERE[one.where], "" if one.where in {"record", "mesh"} else "quiet"),
        (moment(one.until_ms) if one.until_ms is not None else "", "quiet"),
        (f"{one.beat} {one.phase}", "quiet"),
        (one.hlc, "quiet"),
    ]


_FIELDS = ("kind", "where", "until_ms", "at_ms", "hlc", "beat", "phase")
_WHERE = {"record": "in its record", "mesh": "on the mesh", "evicted": "evicted", "gone": "gone"}
