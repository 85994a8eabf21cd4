"""`antiphon retry`: submits a job again that ended without a result, or many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.commands.jobs.cancel import SomeJob
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import err, out
from antiphon.interfaces.cli.shared.job_filters import JobFilterOptions
from antiphon.interfaces.cli.shared.many_jobs import ManyOptions, exit_of, say_done

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.queries.many_jobs import Chosen


@command
async def retry(
    mesh: Mesh,
    as_json: bool,
    job: SomeJob = None,
    *,
    wanted: JobFilterOptions,
    many: ManyOptions,
    all_failed: bool = typer.Option(
        False, "--all-failed", help="Every job that failed or expired and was not retried."
    ),
    error: str = typer.Option(
        "",
        metavar="TEXT",
        help="Only jobs whose outcome and error have these words, as attention shows them.",
        show_default=False,
    ),
) -> Answer:
    """Retry a job that ended without a result, or all that match.

    Each becomes a new job that is linked to the old one; an ended job is never reopened. A job
    that was already retried is not retried again. You are asked before many jobs are retried.

    \b
      antiphon retry 3f9a
      antiphon retry --kind report --text "connection refused" --since 2h
      antiphon retry --kind report --error "failed: ConnectionError"
      antiphon retry --all-failed
    """  # noqa: D301 - \b keeps the lines apart
    is_many = all_failed or bool(error) or bool(wanted.filters())
    if (job is None) == (not is_many):
        raise WrongUsage(
            "give either JOB, --all-failed, or options that say which jobs",
            hint="antiphon jobs --failed lists such jobs",
        )
    chosen = await _chosen(mesh, job, wanted, many, error)
    if job is None and not many.agreed("retry", chosen, as_json=as_json):
        return Answer({"retried": []}, lambda: out.say("nothing was retried"))
    from antiphon.sdk.queries.many_jobs import retry_each

    dones = await retry_each(mesh, chosen.jobs)
    if job is not None and dones[0].problem is not None:
        raise dones[0].problem
    retried = [(one.job, one.result) for one in dones if one.result is not None]

    def words() -> None:
        for found, handle in retried:
            if handle.is_new:
                out.say(handle.id)
                err.say(f"  {found.kind} {short(found.id)} is retried as {short(handle.id)}")
            else:
                err.say(f"{found.kind} {short(found.id)} was already retried as {short(handle.id)}")
        if not dones:
            err.say("nothing to retry" + (f" in {wanted.kind}" if wanted.kind else ""))
        say_done(dones, chosen)

    facts = [
        {"job": handle.id, **fields(handle, "kind", "is_new"), "retry_of": found.id}
        for found, handle in retried
    ]
    return Answer({"retried": facts, "has_more": chosen.has_more}, words, exit_of(dones))


async def _chosen(
    mesh: Mesh, job: str | None, wanted: JobFilterOptions, many: ManyOptions, error: str
) -> Chosen:
    from antiphon.sdk.queries.many_jobs import Chosen, retryable

    if job is not None:
        return Chosen([await find_job(mesh, job)], has_more=False)
    return await retryable(mesh, limit=many.limit, error=error, **wanted.filters())
