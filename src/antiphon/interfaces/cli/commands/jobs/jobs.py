"""`antiphon jobs`: lists the jobs of the mesh, newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import wait_in_words
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.node_names import NodeName, node_names
from antiphon.interfaces.cli.screen.options import open_mesh, short, short_node
from antiphon.interfaces.cli.screen.terminal import (
    Piece,
    ago,
    clock,
    counted,
    err,
    out,
    span,
    state_piece,
)
from antiphon.interfaces.cli.shared.job_filters import JobFilterOptions
from antiphon.interfaces.cli.shared.outbox_words import item_object, tentative_row
from antiphon.sdk.defaults import MOST_LISTED, StateName

if TYPE_CHECKING:
    from antiphon.sdk.archive.erasure import Erasure
    from antiphon.sdk.costs.cost_report import Spent
    from antiphon.sdk.dead_letters import DeadLetter
    from antiphon.sdk.jobs.unserved_kinds import UnservedKind
    from antiphon.sdk.mesh import Job, Mesh

NONE_FORGOTTEN: Final[Mapping[str, Erasure]] = MappingProxyType({})


@command
async def jobs(
    home: Path | None,
    as_json: bool,
    wanted: JobFilterOptions,
    *,
    failed: bool = typer.Option(
        False, "--failed", help="Only jobs that ended without a result, and why."
    ),
    overdue: bool = typer.Option(
        False, "--overdue", help="Only jobs whose worker is past its deadline."
    ),
    claimable_by: str = typer.Option(
        "",
        metavar="NODE",
        help="Only pending jobs that the routes let this node claim now, oldest first.",
        show_default=False,
    ),
    archived: bool = typer.Option(
        False, "--archived", help="Only jobs in the archive that have ended; needs no server."
    ),
    limit: int = typer.Option(20, min=1, max=MOST_LISTED, help="List at most this many."),
    next_: str = typer.Option(
        "", "--next", metavar="CURSOR", help="Go on after a list that ended with this cursor."
    ),
) -> Answer:
    """List jobs, newest first.

    \b
      antiphon jobs --state failed --text "connection refused" --since 2h
      antiphon jobs --by laptop --worker gpu-1 --kind render
    """  # noqa: D301 - \b keeps the lines apart
    given = {
        "--failed": failed,
        "--state": bool(wanted.state),
        "--overdue": overdue,
        "--claimable-by": bool(claimable_by),
        "--archived": archived,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise WrongUsage(f"{' and '.join(chosen)} cannot be combined", hint="leave out all but one")
    if archived:
        return await _archived(home, wanted.kind, limit)
    filters = wanted.filters()
    if failed:
        filters["state"] = ["failed", "aborted"]
    async with open_mesh(home, offline=True) as mesh:
        kept = [] if chosen or next_ else mesh.outbox.tentative_jobs()
        is_connected = mesh.outbox.is_connected
        found = await mesh.jobs(
            overdue=overdue, claimable_by=claimable_by, limit=limit, after=next_, **filters
        )
        counts = await mesh.queries.counts(kind=wanted.kind)
        if failed:
            from antiphon.sdk.dead_letters import letters_of

            async with mesh.replica() as replica:
                return _failed(letters_of(replica, found), wanted.kind, counts, found.next)
        from antiphon.sdk.archive.erasure import forgotten_jobs
        from antiphon.sdk.authority.holdings import may_submit

        orders = await forgotten_jobs(mesh, found)
        claimers = [] if as_json else [job.claimer for job in found]
        name = await node_names(mesh, claimers) if is_connected else short_node
        asks = is_connected and not as_json
        unserved = await _unserved(mesh, found, wanted.kind) if asks else []
        is_for_submitters = not is_connected or may_submit(mesh)

    def words() -> None:
        if found or kept:
            heads = ("JOB", "STATE", "KIND", "SUBMITTED", "TOOK", "TRIES", "BY")
            rows = [*map(tentative_row, kept), *(_row(job, name, orders) for job in found)]
            out.table(heads, rows, flexible=2)
        elif chosen or filters:
            out.say("no job matches" + (" so far" if found.next else ""))
        else:
            _say_none(is_for_submitters=is_for_submitters)
        if counts:
            order = [name.value for name in StateName]
            listed = ", ".join(f"{counts[name]:,} {name}" for name in order if name in counts)
            err.pieces((f"{counted(sum(counts.values()), 'job')}: {listed}", "quiet"))
        for one in unserved:
            err.say("! ", one.words)
            err.say("  try: ", one.hint)
        _say_next(found.next)
        if not is_connected:
            err.say("the mesh cannot be reached: these are the jobs that this machine knew of")

    facts = {
        "jobs": [
            {**job_object(job), "forgotten": fields(orders[job.id], "by", "at_ms")}
            if job.id in orders
            else job_object(job)
            for job in found
        ],
        "tentative": [item_object(one) for one in reversed(kept)],
        "is_connected": is_connected,
        "counts": counts,
        "next": found.next,
    }
    return Answer(facts, words)


async def _unserved(mesh: Mesh, found: Sequence[Job], kind: str) -> list[UnservedKind]:
    """Kinds that nobody runs, if jobs of the list wait."""
    from antiphon.sdk.jobs.unserved_kinds import unserved_here

    waits = any(job.state == "pending" for job in found)
    return await unserved_here(mesh, kind=kind) if waits else []


def _say_none(*, is_for_submitters: bool) -> None:
    out.say("no jobs yet")
    if is_for_submitters:
        err.say("  try: ", "antiphon submit example.add 2 3")
    else:
        err.say("  try: ", "antiphon worker MODULE; this machine may run jobs, not submit them")


async def _archived(home: Path | None, kind: str, limit: int) -> Answer:
    from antiphon.sdk.archive.archives import open_archive

    async with open_archive(home=home) as archive:
        found = await archive.jobs(kind=kind, limit=limit)

    def words() -> None:
        if not found:
            out.say("no job in the archive matches" if kind else "no jobs in the archive yet")
            return
        heads = ("JOB", "STATE", "KIND", "SUBMITTED", "TOOK", "TRIES", "BY")
        out.table(heads, (_row(job, short_node) for job in found), flexible=2)

    return Answer({"jobs": [job_object(job) for job in found]}, words)


def _say_next(cursor: str) -> None:
    if cursor:
        err.say("  more: ", f"the same command with --next {cursor}")


def _failed(letters: list[DeadLetter], kind: str, counts: dict[str, int], cursor: str) -> Answer:
    def words() -> None:
        if not letters:
            out.say("no jobs ended without a result" + (f" in {kind}" if kind else ""))
            return
        heads = ("JOB", "STATE", "KIND", "ENDED", "TRIES", "WHY")
        out.table(heads, map(_letter_row, letters), flexible=5)
        if any(letter.retried_as is None for letter in letters):
            err.say("  try: ", "antiphon retry JOB, or antiphon show JOB for the history")
        _say_next(cursor)

    listed = [_letter_object(one) for one in letters]
    return Answer({"jobs": listed, "counts": counts, "next": cursor}, words)


def _letter_row(letter: DeadLetter) -> list[Piece]:
    job = letter.job
    words = [letter.error.name if letter.error else job.outcome, letter.note]
    why = ": ".join(word for word in words if word)
    if letter.retried_as is not None:
        why = f"retried as {short(letter.retried_as)}; {why}"
    return [
        (short(job.id), ""),
        state_piece(job.state.value),
        (job.kind, ""),
        (ago(job.ended_ms), "quiet"),
        (f"{job.tries}/{job.attempts_max}", "quiet"),
        (why, ""),
    ]


def _letter_object(letter: DeadLetter) -> dict[str, Any]:
    error = letter.error
    return {
        **job_object(letter.job),
        "error": {"name": error.name, "message": error.message} if error else None,
        "note": letter.note,
        "retried_as": letter.retried_as,
    }


def _row(job: Job, name: NodeName, orders: Mapping[str, Erasure] = NONE_FORGOTTEN) -> list[Piece]:
    end_ms = job.ended_ms if job.is_terminal else time.time() * 1000
    took = (
        ""
        if not job.is_terminal and not job.claimer
        else span(max(end_ms - job.scheduled_ms, 0) / 1000)
    )
    by = wait_words(job) if job.state == "waiting" else name(job.claimer)
    return [
        (short(job.id), ""),
        state_piece(job.state.value),
        (job.kind, ""),
        (ago(job.scheduled_ms), "quiet"),
        (took, "quiet"),
        (f"{job.tries}/{job.attempts_max}", "quiet"),
        (f"{by}, forgotten {ago(orders[job.id].at_ms)}" if job.id in orders else by, "quiet"),
    ]


def wait_words(job: Job) -> str:
    """What a waiting job waits for, as the end of a sentence."""
    if job.waits_for_time_alone:
        return wait_in_words(job.not_before_ms, time.time())
    room = f"room under {job.concurrency}" if job.concurrency else ""
    others = f"{counted(len(job.awaited), 'other job')} to end" if job.awaited else ""
    words = f"waits for {', and then for '.join(filter(None, (others, room)))}"
    when = f"; not before {clock(job.not_before_ms)}" if job.not_before_ms else ""
    return words + when


def job_object(job: Job) -> dict[str, Any]:
    """A job as JSON."""
    return {
        "job": job.id,
        **fields(job, "kind", "outcome", "priority", "attempts_max", "postponed", "scheduler"),
        "state": job.state.value,
        "called_ms": job.scheduled_ms,
        **{name: getattr(job, name) or None for name in ("not_before_ms", "ended_ms", "claimer")},
        "attempts": job.tries,
        "checkpoint": job.checkpoint.hash if job.checkpoint is not None else None,
        "deadline_ms": job.deadline_ms or None,
        "account": job.account,
        "spent": [_spent_object(node, spent) for node, spent in job.spent],
    }


def _spent_object(node: str, spent: Spent) -> dict[str, Any]:
    from antiphon.sdk.costs.cost_report import amount_text, beats_text

    return {
        "node": node,
        "beats": beats_text(spent.beats_milli),
        "cost": {spent.currency: amount_text(spent.amount_nano)} if spent.currency else {},
        "partial": spent.is_partial,
    }
