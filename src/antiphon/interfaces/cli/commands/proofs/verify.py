"""`antiphon verify FILE`: what a bundle shows, by whom, and what it does not show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.commands.proofs.rerun import tell_rerun
from antiphon.interfaces.cli.screen import command_loop
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.options import (
    HomeOption,
    JsonOption,
    print_json,
    short,
    short_node,
)
from antiphon.interfaces.cli.screen.terminal import counted, out

if TYPE_CHECKING:
    from antiphon.sdk.proofs.bundles import Report
    from antiphon.sdk.proofs.proof import DsseEnvelope


OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="DID", help="The key that founded the mesh, as you know it to be."
    ),
]
ArtifactsOption = Annotated[
    Path | None,
    typer.Option(
        "--artifacts",
        metavar="DIR",
        help="Compare the files below with the job's outputs; with --rerun, take inputs there.",
    ),
]


def verify(
    bundle: Annotated[
        Path, typer.Argument(metavar="FILE", help="A bundle from 'antiphon export'.")
    ],
    *,
    owner: OwnerOption = None,
    artifacts: ArtifactsOption = None,
    rerun: Annotated[
        bool,
        typer.Option(
            "--rerun", help="Run the command again, shut in, on this machine, and compare."
        ),
    ] = False,
    network: Annotated[
        bool, typer.Option("--network", help="Let the rerun have the network, if it asks for it.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Check a bundle offline: no server, no state directory, no network.

    Everything rests on the key that founded the mesh: give the one that you trust. Only a rerun
    whose inputs are not in DIR asks the mesh of this directory for them.
    """
    from antiphon.sdk.proofs.bundles import open_bundle

    if network and not rerun:
        raise WrongUsage("--network is about running it again", hint="--rerun --network")

    try:
        data = bundle.read_bytes()
    except OSError as problem:
        raise Misconfigured(
            f"{bundle} cannot be read: {problem.strerror}", hint="antiphon export JOB makes one"
        ) from problem
    report = open_bundle(data, owner=owner)
    shown, open_ends = proved(report, is_owner_given=owner is not None), not_proved(report)
    if artifacts is not None and not rerun:
        shown.append(_compared(report, artifacts))
    if rerun:
        return command_loop.run(
            tell_rerun(report, artifacts, home, network=network, as_json=as_json)
        )
    if as_json:
        print_json(_facts(report, shown, open_ends))
        return Exit.OK
    out.say(f"this bundle holds: {report.key.kind} {short(report.key.name)}{_outcome(report)}")
    for title, sentences in (("shown", shown), ("not shown", open_ends)):
        out.say("")
        out.say(title)
        for sentence in sentences:
            out.hanging([("  - ", "")], [(sentence, "")])
    return Exit.OK


def _compared(report: Report, directory: Path) -> str:
    from antiphon.sdk.results.artifacts import compare

    same = compare(report, directory)
    if not same:
        return f"no output has a file of its own, so none was compared below {directory}"
    names = ", ".join(output.name for output in same)
    return f"below {directory} lies exactly what the job wrote, by size and digests: {names}"


def _facts(report: Report, shown: list[str], open_ends: list[str]) -> dict[str, object]:
    completion = report.completion
    return {
        "ok": True,
        "mesh": report.mesh,
        "owner": report.owner,
        "coordinator": report.coordinator,
        "family": report.key.family,
        "kind": report.key.kind,
        "job": report.key.name,
        "outcome": report.job.outcome if report.is_job else "",
        "worker": completion.author if completion is not None else None,
        "seal": {"upto": report.seal.upto, "root": report.seal.root},
        "shown": shown,
        "not_shown": open_ends,
    }


def _outcome(report: Report) -> str:
    if not report.is_job:
        return f", of {report.key.family}"
    return f", {report.job.outcome or report.job.state.value}"


def proved(report: Report, *, is_owner_given: bool) -> list[str]:
    """What the bundle shows, one sentence each."""
    trust = (
        "which is the owner that you named"
        if is_owner_given
        else "which you did not name: that it is the right one is an assumption (--owner DID)"
    )
    about = "the job until its end" if report.is_job else "it until then"
    sentences = [
        f"the mesh {report.name!r} ({report.mesh}) was founded by {report.owner}, {trust}",
        f"{counted(report.records, 'record')}, each with its place, its time and its verdict, are"
        f" under one seal over the first {report.seal.size:,} records of the log",
        f"the seal is signed by {report.coordinator}, the coordinator by what the owner says in"
        " this bundle",
        "every signature holds, and judging the records again gives exactly the sealed verdicts;"
        f" of what happened to {about} nothing was left out",
    ]
    if not report.is_job:
        return [*sentences, *(f"record {line.seq}: {line.words}" for line in report.story())]
    completion = report.completion
    if completion is None:
        sentences.append(f"the job ended as {report.job.outcome}; no run of it was completed")
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
            sentences.append(f"in its words: {in_its_words(body.proof)}")
    return sentences


def in_its_words(envelope: DsseEnvelope) -> str:
    """What the worker says about how the job was run."""
    from antiphon.sdk.proofs.proof import open_proof

    said = open_proof(envelope).predicate
    program = said.runner.name
    if said.runner.digest is not None and said.runner.digest.sha256 is not None:
        program += f" (sha256 {said.runner.digest.sha256[:16]}…)"
    shut_in = {
        "none": "in the worker's own process",
        "process": "as a plain process, NOT shut in",
        "sandbox": "shut in",
    }[said.isolation.level]
    held = next((one for one in said.isolation.held if one.startswith("network:")), "")
    network = {"network:none": ", without the network", "network:host": ", with the network"}
    ended = f", exit code {said.exit}" if said.exit is not None else ""
    return f"{program} ran {shut_in}{network.get(held, '')}, {said.usage.wall_ms} ms{ended}"


def not_proved(report: Report) -> list[str]:
    """What no bundle can show, and what this one does not."""
    sentences = [
        "whether the owner's key was replaced, or another coordinator named, in records that this"
        f" bundle leaves out or that came after record {report.seal.upto:,}",
    ]
    if not report.is_job:
        sentences.append("what was written about it later")
    else:
        sentences += _not_proved_of_a_job(report)
    if report.control.rules.authority == "open":
        sentences.append("that anybody was entitled to anything: the mesh is open to all")
    return sentences


def _not_proved_of_a_job(report: Report) -> list[str]:
    sentences = [
        "repeated calls, and what was written about the job after its end: neither changes it",
    ]
    if report.completion is not None:
        sentences.append("that the worker's machine told the truth about what it ran")
    if report.completion is None or report.completion.body.proof is None:
        sentences.append("a proof of execution: there is none")
    return sentences
