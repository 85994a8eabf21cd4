"""Proving: what a worker signs about a run that it has just finished."""

from __future__ import annotations

import platform
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, structs

from antiphon.core import clock, manifest, proof
from antiphon.core.families.jobs.ops import CompleteBody
from antiphon.runtime.host import installed_version

if TYPE_CHECKING:
    from antiphon.runtime.peer import Peer

IN_PROCESS = proof.Isolation(level="none")


class Run(Struct, frozen=True, kw_only=True):
    """What is known about one run besides its result."""

    manifest: manifest.Manifest
    started: clock.Hlc
    usage: proof.Usage
    runner: proof.Runner
    isolation: proof.Isolation = IN_PROCESS
    environment: str | None = None


@lru_cache(maxsize=1)
def python_runner() -> proof.Runner:
    """This process, as what runs registered functions."""
    here = f"{platform.system().lower()}-{platform.machine()}"
    name = f"antiphon on {platform.python_implementation()} {platform.python_version()}"
    return proof.Runner(name=name, version=installed_version(), platform=here)


def prove(peer: Peer, body: CompleteBody, run: Run) -> CompleteBody:
    """The completion with its proof."""
    author = peer.author
    root = run.manifest.policy_root
    predicate = proof.Predicate(
        mesh=peer.mesh,
        kind=body.kind,
        job=body.job,
        manifest=proof.manifest_digests(body.job, run.manifest),
        inputs=_inputs(run.manifest),
        worker=author.did,
        fence=body.fence,
        started=clock.pack(run.started),
        ended=clock.pack(author.now()),
        status=body.status,
        exit=body.exit,
        runner=run.runner,
        isolation=run.isolation,
        environment=run.environment,
        policy_root=None if root is UNSET else str(root),
        usage=run.usage,
    )
    payload = proof.statement(predicate, body.outputs)
    return structs.replace(body, proof=author.prove(payload))


def _inputs(content: manifest.Manifest) -> tuple[proof.Subject, ...]:
    given = () if content.inputs is UNSET else content.inputs
    return tuple(
        proof.Subject(
            name=str(one.name) if one.name is not UNSET else f"input-{number}",
            digest=proof.Digests(blake3=one.hash.removeprefix("blake3:")),
        )
        for number, one in enumerate(given, start=1)
        if isinstance(one, manifest.BlobInput)
    )
