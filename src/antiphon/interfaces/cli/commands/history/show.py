"""`antiphon show JOB`: the history of a job, with the verdicts, and its state."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from antiphon.errors import JobFailed, Rejected
from antiphon.interfaces.cli.commands.jobs.jobs import job_object, wait_words
from antiphon.interfaces.cli.commands.plans.plan import plan_of, say_plan
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_any, find_job
from antiphon.interfaces.cli.screen.node_names import aliases, node_names
from antiphon.interfaces.cli.screen.options import open_mesh, short, short_node
from antiphon.interfaces.cli.screen.terminal import (
    ago,
    clock,
    counted,
    moment,
    out,
    span,
    state_piece,
)
from antiphon.interfaces.cli.shared.address_options import happened_at, read_address
from antiphon.interfaces.cli.shared.follow import followed
from antiphon.interfaces.cli.shared.graph_tree import as_objects, draw
from antiphon.interfaces.cli.shared.outbox_words import item_object, item_pieces
from antiphon.interfaces.cli.shared.story_rows import (
    find_archived,
    first_line,
    report_object,
    say_report,
    story_row,
)
from antiphon.interfaces.cli.shared.wait import progress_words, say_it_keeps_running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.archive.erasure import Erasure
    from antiphon.sdk.dead_letters import RetryLinks
    from antiphon.sdk.graphs.neighbours import Around
    from antiphon.sdk.handle import JobHandle, Progress
    from antiphon.sdk.lanes import LaneKey
    from antiphon.sdk.mesh import Job, Line, Mesh
    from antiphon.sdk.results.job_details import Details


@command
async def show(
    home: Path | None,
    as_json: bool,
    job: JobArgument,
    *,
    follow: bool = typer.Option(
        False,
        "--follow",
        "-f",
        help="Wait until it ends, and show what it prints and the parts of its stream.",
    ),
) -> Answer:
    """Show the history of a job, or of a plan.

    Who did what, when, and whether it was accepted; then the jobs that it begins after, and those
    that begin after it. A job that is no longer on the log is shown from the archive, if there is
    one here; one that waits for a connection is shown as tentative. 'JOB;beats=~~4' shows what had
    happened four beats ago, 'JOB;seconds=~~30' thirty seconds ago, 'JOB;phase=review' what happened
    in that phase of a bar.
    """
    from antiphon.sdk.mesh import StateDirectory
    from antiphon.sdk.outbox.namespace import LocalOutbox

    kept = LocalOutbox.of(StateDirectory.find(home)).tentative_jobs(read_address(job).what)
    if len(kept) == 1:
        (one,) = kept
        return Answer(
            {**item_object(one), "is_tentative": True}, lambda: out.pieces(*item_pieces(one))
        )
    async with open_mesh(home) as mesh:
        return await _show(mesh, job, as_json=as_json, follow=follow)


async def _show(mesh: Mesh, job: str, *, as_json: bool, follow: bool) -> Answer:
    from antiphon.sdk.archive.erasure import forgotten_jobs
    from antiphon.sdk.explanation import lost_workers
    from antiphon.sdk.graphs.neighbours import around
    from antiphon.sdk.handle import progress_of
    from antiphon.sdk.results.job_details import details_of

    address = read_address(job)
    prefix = address.what
    if follow:
        await _stay(mesh, prefix, as_json=as_json)
    try:
        found = await find_any(mesh, prefix)
    except Rejected as refused:
        report, _ = await find_archived(mesh, prefix, refused)
        return Answer(report_object(report), lambda: say_report(report))
    if isinstance(found, tuple):
        return await _show_other(mesh, found)
    order = (await forgotten_jobs(mesh, [found])).get(found.id)
    if order is not None:
        return await _show_forgotten(mesh, found, order)
    handle = mesh.job(found.kind, found.id)
    state, story = await handle.state(), await handle.story()
    view = await handle.lane()
    details, progress = details_of(view), progress_of(view)
    if address.is_timed:
        story = await happened_at(mesh, address, story, is_silent=as_json)
    links = await handle.links()
    graph = await around(mesh, found)
    names = {} if as_json else await aliases(mesh, (line.author for line in story))
    end = await _end_of(handle) if state.is_terminal else {}

    def words() -> None:
        so_far: dict[str, Any] = {}
        if not state.is_terminal:  # else its error says who was lost
            lost = lost_workers(view, lambda node: names.get(node) or short_node(node))
            so_far = {"progress": progress, "lost": lost}
        shown = end | {key: value for key, value in so_far.items() if value}
        _tell(state, story, shown, names, details, graph)
        _tell_links(links)
        draw(graph)

    lines = await _line_objects(mesh, story)
    facts = {
        **job_object(state),
        "arguments": details.arguments,
        **({} if progress is None else {"progress": _progress_object(progress)}),
        **fields(links, "retry_of", "retried_as"),
        "after": as_objects(graph.before),
        "then": as_objects(graph.after),
        **end,
        **({} if details.failure is None else {"traceback": details.failure.traceback}),
        "story": lines,
    }
    return Answer(facts, words)


async def _show_forgotten(mesh: Mesh, job: Job, order: Erasure) -> Answer:
    """Show a job of which nothing but its name and its end is left."""
    name = await node_names(mesh, [order.by])

    def words() -> None:
        out.pieces(state_piece(job.state.value), (f"  {job.kind} {short(job.id)}", "strong"))
        out.say(f"  forgotten by {name(order.by)} {ago(order.at_ms)}")
        out.say("  what it was given and what it returned is removed")

    return Answer({**job_object(job), "forgotten": fields(order, "by", "at_ms")}, words)


async def _end_of(handle: JobHandle[Any]) -> dict[str, Any]:
    """How the job ended."""
    from antiphon.sdk.results.job_details import DEGRADED, OUTPUT

    try:
        end = {"result": await handle.result()}
    except JobFailed as failed:
        end = {"error": failed.message, "error_type": failed.error_type}
    ended = await handle.end()
    degraded = next((one.text for one in ended.outputs if one.name == DEGRADED), None)
    if degraded is not None:
        end["degraded"] = degraded
    if any(one.name == OUTPUT for one in ended.outputs):
        end["output"] = OUTPUT
    if ended.exit is not None:
        end |= {"exit": ended.exit, "outputs": [one.name for one in ended.outputs]}
    return end


def _named(line: Line, names: dict[str, str]) -> str:
    """The line's words with its author by name."""
    fragment = short_node(line.author) if line.author else ""
    if line.author in names and line.words.startswith(fragment):
        return names[line.author] + line.words.removeprefix(fragment)
    return line.words


async def _show_other(mesh: Mesh, key: LaneKey) -> Answer:
    """Show something that is not a job: its state in the replica, and its history."""
    from antiphon.sdk.lanes import story_of

    found, plan = await story_of(mesh, key), await plan_of(mesh, key)
    name = await node_names(mesh, [plan.author] if plan is not None else [])

    def words() -> None:
        out.pieces((f"{key.family}  {key.kind} {key.name}", "strong"))
        if plan is not None:
            say_plan(plan, name(plan.author))
        for fact, value in found.facts.items() if plan is None else ():
            if value is not None:
                out.pieces((f"  {fact} {value}", "quiet"))
        out.say("")
        since_ms = found.story[0].commit_ms if found.story else 0
        rows = [story_row(line, since_ms, line.words) for line in found.story]
        out.table((), rows, flexible=3, wraps=True)

    story = await _line_objects(mesh, found.story)
    return Answer({**key._asdict(), "facts": found.facts, "story": story}, words)


async def _stay(mesh: Mesh, prefix: str, *, as_json: bool) -> None:
    """Wait until the job has ended."""
    found = await find_job(mesh, prefix)
    handle = mesh.job(found.kind, found.id)
    try:
        if as_json:
            await handle.end()
            return
        async with followed(mesh, handle):
            with suppress(JobFailed):  # how it ended is shown next
                async for part in handle.stream():
                    out.verbatim(json.dumps(part, ensure_ascii=False))
            await handle.end()
    except asyncio.CancelledError:
        if not as_json:
            say_it_keeps_running(handle)
        raise


async def _line_objects(mesh: Mesh, story: Sequence[Line]) -> list[dict[str, Any]]:
    stamps = await mesh.tempo.history()
    return [
        {
            **fields(line, "seq", "hlc", "op", "author", "words"),
            **fields(stamps.at(line.commit_ms), "beat", "phase"),
            "at_ms": line.commit_ms,
            "verdict": line.verdict.value,
            "accepted": line.verdict.is_accepted,
        }
        for line in story
    ]


def _progress_object(progress: Progress) -> dict[str, Any]:
    at_ms = round(progress.at.timestamp() * 1000)
    return {"done": progress.done, "note": progress.note, "at_ms": at_ms}


def _tell_so_far(lost: str | None, progress: Progress | None) -> None:
    if lost:
        out.hanging([("  ", "")], [(lost, "")])
    if progress is not None:
        when = ago(round(progress.at.timestamp() * 1000))
        out.hanging([("  progress ", "quiet")], [(f"{progress_words(progress)} ({when})", "")])


def _tell(
    job: Job,
    story: list[Line],
    end: dict[str, Any],
    names: dict[str, str],
    details: Details,
    graph: Around,
) -> None:
    out.pieces(state_piece(job.state.value), (f"  {job.kind} {short(job.id)}", "strong"))
    if details.words:
        what = "command" if "command" in details.arguments else "called with"
        out.hanging([(f"  {what} ", "quiet")], [(details.words, "")])
    for words in [*_standing(job, story, names), *_place_in(graph)]:
        out.pieces((f"  {words}", "quiet"))
    _tell_so_far(end.get("lost"), end.get("progress"))
    out.say("")
    rows = [story_row(line, job.scheduled_ms, _named(line, names)) for line in story]
    out.table((), rows, flexible=3, wraps=True)
    if "exit" in end:
        out.say("")
        out.hanging([("exit    ", "quiet")], [(str(end["exit"]), "")])
        kept = f"{', '.join(end['outputs'])}: antiphon get {short(job.id)}"
        out.hanging([("kept    ", "quiet")], [(kept, "")])
    if "result" in end and "exit" not in end:
        out.say("")
        result = end["result"]
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        out.hanging([("result  ", "quiet")], [(text, "")])
        if "degraded" in end:
            out.hanging([("degraded ", "quiet")], [(end["degraded"], "failed")])
    elif "error" in end:
        out.say("")
        # The message names the job, which is printed above already.
        why = end["error"].partition("): ")[2] or end["error"]
        out.hanging([("ended   ", "quiet")], [(first_line(why), "failed")])
    _tell_failure(details)
    if "output" in end:
        kept = f"what it printed: antiphon get {short(job.id)} {end['output']} -o -"
        out.hanging([("kept    ", "quiet")], [(kept, "")])
    if job.spent:
        from antiphon.sdk.costs.cost_report import spent_words

        if not end:
            out.say("")
        paid = f", charged to {job.charge_to}" if job.charge_to else ""
        out.hanging([("cost    ", "quiet")], [(f"{spent_words(job.total_spent)}{paid}", "")])
    who = ", ".join(f"{name} is {short_node(did)}" for did, name in names.items())
    if who:
        if not end and not job.spent:
            out.say("")
        out.hanging([("who     ", "quiet")], [(who, "")])


def _tell_failure(details: Details) -> None:
    """Where it failed: a handler's traceback, or the last lines of a command's standard error."""
    failure = details.failure
    if failure is None:
        return
    if failure.traceback:
        title, text = "traceback, innermost call last", failure.traceback
    elif "\n" in failure.message:
        title, text = "the message, to its end", failure.message
    else:
        return
    out.say("")
    out.pieces((title, "quiet"))
    for line in text.split("\n"):
        out.verbatim(line)
    out.say("")


def _tell_links(links: RetryLinks) -> None:
    if links.retry_of is not None:
        out.hanging([("repeats ", "quiet")], [(f"{short(links.retry_of)}", "")])
    if links.retried_as is not None:
        out.hanging([("retried ", "quiet")], [(f"as {short(links.retried_as)}", "")])


def _standing(job: Job, story: list[Line], names: dict[str, str]) -> list[str]:
    """The current state in a sentence or two."""
    words = [f"submitted {ago(job.scheduled_ms)}, on {moment(job.scheduled_ms)}"]
    if job.is_terminal:
        words[0] += f"; ended {span((job.ended_ms - job.scheduled_ms) / 1000)} later"
    used = f"{job.tries} of {counted(job.attempts_max, 'attempt')} used"
    match job.state.value:
        case "pending" if job.attempts or job.postponed:
            words.append(f"{used}; workers may claim it again from {clock(job.retry_after_ms)}")
        case "pending":
            was_held = any(line.op == "job.claim" and line.verdict.is_accepted for line in story)
            now = "no worker holds it now" if was_held else "no worker has claimed it yet"
            words.append(f"{now}; it must start by {moment(job.start_by_ms)}")
        case "waiting":
            words.append(f"it {wait_words(job)}")
        case "claimed" | "running":
            holder = names.get(job.claimer, short_node(job.claimer))
            words.append(f"held by {holder} until {clock(job.deadline_ms)}{_running_words(story)}")
        case _ if job.attempts:
            words.append(used)
    return words


def _place_in(graph: Around) -> list[str]:
    """That a job is a step of a graph, and what it begins after."""
    if not graph:
        return []
    named = [
        f"{one.kind} {short(one.id)} ({one.state or 'not known here'})" for one in graph.before
    ]
    if graph.more_before:
        named.append(f"{counted(graph.more_before, 'job')} more")
    after = f"it comes after {', '.join(named)}" if named else "it comes first"
    then = len(graph.after) + graph.more_after
    later = f"; {counted(then, 'job')} {'comes' if then == 1 else 'come'} after it" if then else ""
    return [f"a step of a graph: {after}{later}"]


def _running_words(story: list[Line]) -> str:
    """How long its present run has taken: a handler that hangs renews its lease like any other."""
    claims = [line for line in story if line.op == "job.claim" and line.verdict.is_accepted]
    begun = [line for line in claims if "renewed" not in line.words]
    if not begun:
        return ""
    return f"; this run began {ago(begun[-1].commit_ms)} (antiphon cancel ends it)"
