"""What happened, record by record, as rows of a table; and a job that only the archive has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError, Misconfigured, Rejected
from antiphon.interfaces.cli.screen.command import fields
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import Piece, ago, clock, moment, out, state_piece

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Line, Mesh
    from antiphon.sdk.proofs.bundles import Report


def first_line(words: str) -> str:
    """The beginning of a text of several lines."""
    first, _, more = words.partition("\n")
    return f"{first} …" if more else first


def story_row(line: Line, since_ms: int, words: str) -> list[Piece]:
    """When something happened, whether it was accepted, and what it was."""
    is_accepted = line.verdict.is_accepted
    since_s = (line.commit_ms - since_ms) / 1000
    mark = ("✓" if line.verdict.value == "ok" else "·") if is_accepted else "✗"
    return [
        (clock(line.commit_ms, with_ms=True), "quiet"),
        (f"{since_s:+.3f} s", "quiet"),
        (mark, "succeeded" if mark == "✓" else "" if is_accepted else "failed"),
        (first_line(words), ""),
    ]


async def find_archived(mesh: Mesh, text: str, refused: Rejected) -> tuple[Report, bytes]:
    """What the archive proves about a job that is not on the log, and its bundle.

    Raises `refused` if there is no archive, or no such job in it.
    """
    from antiphon.sdk.archive.archives import has_archive, open_archive

    try:
        home = mesh.home.path
    except Misconfigured:
        raise refused from None
    if refused.reason != "no_job" or not await has_archive(home):
        raise refused
    async with open_archive(home=home) as archive:
        try:
            key = await archive.find(text)
        except AntiphonError as problem:
            if isinstance(problem, Rejected) and problem.reason != "no_job":
                raise
            raise refused from problem
        return await archive.report(key), await archive.export(key)


def say_report(report: Report) -> None:
    """Tell what an archive proves about a job, or about something else."""
    key, story = report.key, report.story()
    since_ms = story[0].commit_ms if story else 0
    if report.is_job:
        job = report.job
        out.pieces(state_piece(job.state.value), (f"  {key.kind} {short(key.name)}", "strong"))
        out.pieces((f"  submitted {ago(since_ms)}, on {moment(since_ms)}", "quiet"))
    else:
        out.pieces((f"{key.family}  {key.kind} {key.name}", "strong"))
    out.pieces((f"  in the archive, sealed by {report.coordinator}", "quiet"))
    out.say("")
    out.table((), [story_row(line, since_ms, line.words) for line in story], flexible=3, wraps=True)


def report_object(report: Report) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "archived": True,
        "job": report.key.name,
        **fields(report.key, "family", "kind"),
        **fields(report, "mesh", "owner", "coordinator"),
        "outcome": report.job.outcome if report.is_job else "",
        "story": [
            {
                **fields(line, "seq", "op", "author", "words"),
                "at_ms": line.commit_ms,
                "verdict": line.verdict.value,
                "accepted": line.verdict.is_accepted,
            }
            for line in report.story()
        ],
    }
