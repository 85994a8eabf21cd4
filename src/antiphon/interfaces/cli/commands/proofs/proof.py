"""`antiphon proof JOB`: the worker's signed statement of what it ran, for other tools to check."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.lookup import JobArgument, find_job
from antiphon.interfaces.cli.screen.node_names import NodeName, node_names
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.proofs.proof import Statement


@command
async def proof(
    mesh: Mesh,
    job: JobArgument,
    *,
    trailers: bool = typer.Option(
        False, "--trailers", help="Print trailer lines for a commit message."
    ),
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Write the DSSE envelope to this file."
    ),
) -> Answer:
    """Show a job's proof of execution.

    The proof is an in-toto statement in a DSSE envelope, signed by the worker. Any DSSE tool can
    check it.
    """
    from antiphon.sdk.proofs import proof as job_proof

    found = await find_job(mesh, job)
    envelope = await job_proof.proof_of(mesh.job(found.kind, found.id))
    facts, given = job_proof.to_json(envelope), job_proof.open_answer(envelope)
    statement = job_proof.open_envelope(envelope) if given is None else None
    signer = given.predicate.key if given is not None else envelope.signatures[0].keyid
    name = await node_names(mesh, [signer])
    if output is not None:
        await asyncio.to_thread(output.write_text, json.dumps(facts, indent=2) + "\n")
        err.say(f"the envelope is in {output}")

    def words() -> None:
        if given is not None:
            if output is None:
                said = given.predicate
                out.say(f"{name(said.key)} was asked: {said.text}")
                out.say(f"and states that the answer is {said.answer}")
        elif trailers:
            for key, value in job_proof.trailers(envelope):
                out.say(f"{key}: {value}")
        elif output is None and statement is not None:
            _tell(statement, name)

    return Answer(facts, words)


def _tell(statement: Statement, name: NodeName) -> None:
    from antiphon.sdk.proofs import proof as job_proof

    said = statement.predicate
    out.say(f"{name(said.worker)} states that it ran {said.kind} {short(said.job)}")
    code = "" if said.exit is None else f", exit code {said.exit}"
    out.say(f"  ended      {said.status}{code}, after {said.usage.wall_ms / 1000:g} s")
    out.say(f"  fence      {said.fence}")
    out.say(
        f"  runner     {said.runner.name}, version {said.runner.version}, {said.runner.platform}"
    )
    held = f" ({', '.join(said.isolation.held)})" if said.isolation.held else ""
    out.hanging([("  isolation  ", "")], [(f"{_ISOLATION[said.isolation.level]}{held}", "")])
    for title, words in (
        ("used", job_proof.usage_words(said.usage)),
        ("unknown", job_proof.unmeasured_words(said.usage)),
        ("cost", "" if said.cost is None else job_proof.cost_words(said.cost)),
        ("rates of", "" if said.cost is None else f"the tempo policy {said.cost.policy}"),
    ):
        if words:
            out.hanging([(f"  {title:<9}  ", "")], [(words, "")])
    for subject in statement.subject:
        digest = f"blake3:{subject.digest.blake3}"
        out.hanging([("  output     ", "")], [(f"{subject.name}  {digest}", "")])
    out.say("")
    out.say("This proves who signed the statement, not that the statement is true.")


_ISOLATION = {
    "none": "none: in the worker's own process",
    "process": "none: a separate process without a sandbox",
    "sandbox": "a sandbox",
}
