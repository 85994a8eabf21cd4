"""`antiphon verify FILE`: what a bundle shows, by whom, and what it does not show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.exits import Exit
from antiphon.interfaces.cli.options import JsonOption, print_json, short, short_node
from antiphon.interfaces.cli.terminal import counted, out

if TYPE_CHECKING:
    from antiphon.sdk.bundles import Report


def verify(
    bundle: Annotated[
        Path, typer.Argument(metavar="FILE", help="A bundle from 'antiphon export'.")
    ],
    *,
    owner: Annotated[
        str | None,
        typer.Option(
            "--owner", metavar="DID", help="The key that founded the mesh, as you know it to be."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Check a bundle offline: no server, no state directory, no network.

    Everything rests on the key that founded the mesh: give the one that you trust.
    """
    from antiphon.sdk.bundles import open_bundle

    try:
        data = bundle.read_bytes()
    except OSError as problem:
        raise Misconfigured(
            f"{bundle} cannot be read: {problem.strerror}", hint="antiphon export JOB makes one"
        ) from problem
    report = open_bundle(data, owner=owner)
    shown, open_ends = proved(report, is_owner_given=owner is not None), not_proved(report)
    if as_json:
        print_json(_facts(report, shown, open_ends))
        return Exit.OK
    out.say(f"this bundle holds: {report.job.kind} {short(report.job.job)}, {_outcome(report)}")
    for title, sentences in (("shown", shown), ("not shown", open_ends)):
        out.say("")
        out.say(title)
        for sentence in sentences:
            out.hanging([("  - ", "")], [(sentence, "")])
    return Exit.OK


def _facts(report: Report, shown: list[str], open_ends: list[str]) -> dict[str, object]:
    return {
        "ok": True,
        "mesh": report.mesh,
        "owner": report.owner,
        "coordinator": report.coordinator,
        "kind": report.job.kind,
        "job": report.job.job,
        "outcome": report.job.outcome,
        "worker": report.completion.author if report.completion is not None else None,
        "seal": {"upto": report.seal.upto, "root": report.seal.root},
        "shown": shown,
        "not_shown": open_ends,
    }


def _outcome(report: Report) -> str:
    return report.job.outcome or report.job.state.value


def proved(report: Report, *, is_owner_given: bool) -> list[str]:
    """What the bundle shows, one sentence each."""
    trust = (
        "which is the owner that you named"
        if is_owner_given
        else "which you did not name: that it is the right one is an assumption (--owner DID)"
    )
    sentences = [
        f"the mesh {report.name!r} ({report.mesh}) was founded by {report.owner}, {trust}",
        f"{counted(report.records, 'record')}, each with its place, its time and its verdict, are"
        f" under one seal over the first {report.seal.size:,} records of the log",
        f"the seal is signed by {report.coordinator}, the coordinator by what the owner says in"
        " this bundle",
        "every signature holds, and judging the records again gives exactly the sealed verdicts;"
        " of what happened to the job until its end nothing was left out",
    ]
    completion = report.completion
    if completion is None:
        sentences.append(f"the job ended as {_outcome(report)}; no run of it was completed")
    else:
        body = completion.body
        what = ", ".join(f"{output.name} ({output.hash})" for output in body.outputs)
        sentences.append(
            f"{completion.author} completed it, {body.status}, under fence {body.fence}"
            + (f"; outputs: {what}" if what else "; it has no outputs")
        )
        if body.proof is not None:
            sentences.append(
                "its proof of execution is signed by the same worker"
                f" ({short_node(completion.author)}) and says the same"
            )
    return sentences


def not_proved(report: Report) -> list[str]:
    """What no bundle can show, and what this one does not."""
    sentences = [
        "whether the owner's key was replaced, or another coordinator named, in records that this"
        f" bundle leaves out or that came after record {report.seal.upto:,}",
        "repeated calls, and what was written about the job after its end: neither changes it",
    ]
    if report.completion is not None:
        sentences.append("that the worker's machine told the truth about what it ran")
    if report.completion is None or report.completion.body.proof is None:
        sentences.append("a proof of execution: there is none")
    if report.control.rules.authority == "open":
        sentences.append("that anybody was entitled to anything: the mesh is open to all")
    return sentences
