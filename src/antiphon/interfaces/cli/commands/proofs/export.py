"""`antiphon export JOB`: writes everything that others need to check a job to one file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.errors import Misconfigured, Rejected
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_any
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.progress import Progress
from antiphon.interfaces.cli.screen.terminal import counted, err, out
from antiphon.interfaces.cli.shared.story_rows import find_archived

if TYPE_CHECKING:
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Job, Mesh


@command
async def export(
    mesh: Mesh,
    job: JobArgument,
    *,
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="The file to write. Default: JOB.json."
    ),
    artifacts: Path | None = typer.Option(
        None, metavar="DIR", help="Also write the job's outputs to this directory."
    ),
) -> Answer:
    """Write a bundle that proves offline what happened to a job.

    It contains the job's records, the records that their verdicts depend on, and a seal over
    them. 'antiphon verify FILE' checks it anywhere, without a server. If the job is not sealed
    yet, the command waits for the next seal. If only the archive has it, it comes from there.
    """
    from antiphon.sdk.proofs import bundles

    told: list[float] = []

    def waiting(left_s: float) -> None:
        if not told:
            err.say(f"waiting for the coordinator's next seal, up to {left_s:.0f} s")
        told.append(left_s)

    owner = (await mesh.authority.who()).owner
    found, written = await _find(mesh, job), list[Path]()
    if isinstance(found, bytes):
        kind, name, data = *_named_in(found), found
    elif isinstance(found, tuple):
        kind, name = found.kind, found.name
        data = await bundles.export_lane(mesh, found, waiting=waiting)
    else:
        kind, name = found.kind, found.id
        data = await bundles.export(mesh, kind, name, waiting=waiting)
        written = await _fetched(mesh, found, artifacts) if artifacts is not None else []
    target = output or Path(f"{short(name)}.json")
    try:
        await asyncio.to_thread(target.write_bytes, data)
    except OSError as problem:
        raise Misconfigured(f"{target} cannot be written: {problem.strerror}") from problem
    facts = {"job": name, "kind": kind, "file": str(target), "bytes": len(data), "owner": owner}
    if artifacts is not None:
        facts["artifacts"] = list(map(str, written))

    def words() -> None:
        out.say(f"{kind} {short(name)} is in {target}, {len(data):,} bytes")
        with_files = ""
        if artifacts is not None:
            out.say(f"{counted(len(written), 'output')} of it in {artifacts}")
            with_files = f" --artifacts {artifacts}"
        out.say("  to check it anywhere, against the owner's key:")
        out.say(f"  antiphon verify {target}{with_files} --owner {owner}")

    return Answer(facts, words)


async def _find(mesh: Mesh, job: str) -> Job | LaneKey | bytes:
    """What is meant; if only the archive has it, its bundle."""
    try:
        return await find_any(mesh, job)
    except Rejected as refused:
        return (await find_archived(mesh, job, refused))[1]


def _named_in(data: bytes) -> tuple[str, str]:
    from antiphon.sdk.proofs.bundles import open_bundle

    key = open_bundle(data).key
    return key.kind, key.name


async def _fetched(mesh: Mesh, job: Job, directory: Path) -> list[Path]:

    progress = Progress(short(job.id))
    try:
        handle = mesh.job(job.kind, job.id)
        written = await mesh.artifacts.fetch_all(handle, directory, on_progress=progress)
    finally:
        progress.end()
    return [path for _, path in written]
