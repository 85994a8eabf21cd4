"""`antiphon forget JOB`: has the bytes of an ended job removed everywhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, err, out, span

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh


@command
async def forget(
    mesh: Mesh,
    job: JobArgument,
    *,
    yes: bool = typer.Option(False, "--yes", help="Do it: this cannot be undone."),
) -> Answer:
    """Remove what an ended job was given and what it returned.

    The order is a record on the log, which every full node follows: from now on the job is not
    shown, its stored values are evicted, and its records leave the archive. The log and the
    replicas lose them when the job is archived, since others may be judged by them until then.
    Digests, verdicts and proofs of inclusion stay. Whoever looks for the job is told who had it
    forgotten, and when. If it is a replica or a question of another job, that one's result stays,
    but it can no longer be exported and verified.
    """
    from antiphon.sdk.archive.erasure import erase_archived, forget_job, leaves_log_ms

    kind, name = await _ended(mesh, job)
    if not yes:
        raise WrongUsage(
            "what is forgotten cannot be brought back", hint=f"antiphon forget {job} --yes"
        )
    order = await forget_job(mesh, kind, name)
    erased = await erase_archived(name, order, home=mesh.home.path)
    leaves_ms = await leaves_log_ms(mesh, kind, name)

    def words() -> None:
        out.say(f"{kind} {short(name)} is forgotten: full nodes remove its bytes")
        out.say(f"  archive   {counted(erased, 'record')} erased from the one of this machine")
        out.say("  values    the coordinator's node evicts them within a minute")
        if leaves_ms is None:
            out.say("  log       its records have left it; replicas lose them now")
        else:
            left = span(max(leaves_ms / 1000 - time.time(), 0))
            out.say(f"  log       its records leave it, and replicas, after {left}")
        err.say("  copies that were made before, such as backups, still have them")

    facts = {
        "job": name,
        "kind": kind,
        "by": order.by,
        "at_ms": order.at_ms,
        "erased": erased,
        "leaves_log_ms": leaves_ms,
    }
    return Answer(facts, words)


async def _ended(mesh: Mesh, job: str) -> tuple[str, str]:
    """The kind and the id of a job that has ended, on the log or in the archive."""
    from antiphon.sdk.archive.archives import has_archive, open_archive

    home = mesh.home.path
    try:
        found = await find_job(mesh, job)
    except Rejected as refused:
        if refused.reason != "no_job" or not await has_archive(home):
            raise
        async with open_archive(home=home) as archive:
            key = await archive.find(job)
        if key.family != "jobs":
            raise
        return key.kind, key.name
    if not found.is_terminal:
        raise Rejected(
            f"job {short(found.id)} has not ended",
            reason="not_ended",
            hint=f"antiphon cancel {short(found.id)}",
        )
    return found.kind, found.id
