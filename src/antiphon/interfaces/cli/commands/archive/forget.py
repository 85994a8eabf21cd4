"""`antiphon forget JOB`: removes the bytes of an ended job from the archive and the blob store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Job, Mesh


@command
async def forget(
    mesh: Mesh,
    job: JobArgument,
    *,
    yes: bool = typer.Option(False, "--yes", help="Do it: this cannot be undone."),
) -> Answer:
    """Remove what an ended job was given and what it returned.

    Its stored arguments, outputs and checkpoints are evicted from the blob store. The bytes of its
    records go from the archive of this machine, which then says who removed them, and when.
    Digests, verdicts and proofs of inclusion stay. Records on the log and in replicas stay for now.
    """
    from antiphon.sdk.archive.archives import has_archive
    from antiphon.sdk.archive.erasure import erase_archived, evict_stored

    home = mesh.home.path
    found: Job | None = None
    try:
        found = await find_job(mesh, job)
    except Rejected as refused:
        if refused.reason != "no_job" or not has_archive(home):
            raise
    if found is not None and not found.is_terminal:
        raise Rejected(
            f"job {short(found.id)} has not ended",
            reason="not_ended",
            hint=f"antiphon cancel {short(found.id)}",
        )
    if not yes:
        raise WrongUsage(
            "what is forgotten cannot be brought back", hint=f"antiphon forget {job} --yes"
        )
    name = found.id if found is not None else job
    evicted = 0 if found is None else await evict_stored(mesh, found)
    now_ms = time.time_ns() // 1_000_000
    erased = await erase_archived(name, by=mesh.did, at_ms=now_ms, home=home)

    def words() -> None:
        out.say(f"{short(name)}: {counted(erased, 'record')} erased from the archive")
        out.say(f"{counted(evicted, 'stored value')} evicted from the blob store")
        if found is not None:
            err.say("  its records are still on the log, and in replicas and older copies")

    facts = {"job": name, "erased": erased, "evicted": evicted, "on_log": found is not None}
    return Answer(facts, words)
