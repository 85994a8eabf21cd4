"""`antiphon cancel`: cancels a job that has not ended, or many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli.commands.jobs.jobs import job_object
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_job, find_job
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, err, out, state_piece
from antiphon.interfaces.cli.shared.job_filters import JobFilterOptions
from antiphon.interfaces.cli.shared.many_jobs import ManyOptions, exit_of, say_done

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

SomeJob = Annotated[
    str | None,
    typer.Argument(
        metavar="[JOB]",
        help="A job's id, enough of its first digits to be unique, or its ULID.",
        show_default=False,
        autocompletion=complete_job,
    ),
]


@command
async def cancel(
    mesh: Mesh,
    as_json: bool,
    job: SomeJob = None,
    *,
    wanted: JobFilterOptions,
    many: ManyOptions,
    reason: str = typer.Option("", help="Why; 'antiphon show' prints it."),
) -> Answer:
    """Cancel a job that has not ended, or all that match.

    You are asked before many jobs are cancelled. If you interrupt it, type the same again.

    \b
      antiphon cancel 3f9a
      antiphon cancel --kind report --older-than 2h
      antiphon cancel --label gpu --state pending --reason "the card is broken"
    """  # noqa: D301 - \b keeps the lines apart
    filters = wanted.filters()
    if (job is None) == (not filters):
        raise WrongUsage(
            "give either JOB or options that say which jobs",
            hint="antiphon jobs --state running lists jobs that have not ended",
        )
    if job is None:
        return await _many(mesh, wanted, many, reason, as_json=as_json)
    found = await find_job(mesh, job)
    ended = await mesh.job(found.kind, found.id).cancel(reason)
    name, is_cancelled = f"{ended.kind} {short(ended.id)}", ended.outcome == "cancelled"

    def words() -> None:
        if is_cancelled:
            out.pieces(state_piece("aborted"), (f"  {name} is cancelled", ""))
        else:
            err.say(f"{name} has already ended: {ended.outcome}")

    facts = {**job_object(ended), "cancelled": is_cancelled}
    return Answer(facts, words, Exit.OK if is_cancelled else Exit.CONFLICT)


async def _many(
    mesh: Mesh, wanted: JobFilterOptions, many: ManyOptions, reason: str, *, as_json: bool
) -> Answer:
    from antiphon.sdk.queries.many_jobs import cancel_each, cancellable

    chosen = await cancellable(mesh, limit=many.limit, **wanted.filters())
    if not many.agreed("cancel", chosen, as_json=as_json):
        return Answer({"cancelled": []}, lambda: out.say("nothing was cancelled"))
    dones = await cancel_each(mesh, chosen.jobs, reason)
    ended = [one.result for one in dones if one.result is not None]
    cancelled = [one for one in ended if one.outcome == "cancelled"]

    def words() -> None:
        if not dones:
            out.say("no job that has not ended matches")
            return
        out.say(f"{counted(len(cancelled), 'job')} cancelled")
        if len(ended) > len(cancelled):
            err.say(f"{counted(len(ended) - len(cancelled), 'job')} had ended meanwhile")
        say_done(dones, chosen)

    facts = {
        "cancelled": [one.id for one in cancelled],
        "failed": [one.job.id for one in dones if one.problem is not None],
        "has_more": chosen.has_more,
    }
    return Answer(facts, words, exit_of(dones))
