"""Writes the proof of a run: what the worker that finished it signs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType, structs

from antiphon.core import manifest
from antiphon.core.clock import hlc
from antiphon.core.cost.job_cost import Cost
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import CompleteBody
from antiphon.core.manifest import Input
from antiphon.core.proof import statement
from antiphon.core.record import codec
from antiphon.runtime.identity.host_clock import installed_version

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session

IN_PROCESS = statement.Isolation(level="none")


class Run(Struct, frozen=True, kw_only=True):
    """What is known about one run besides its result."""

    manifest: manifest.Manifest
    inputs: tuple[Input, ...] | UnsetType = UNSET
    """The manifest's, with results of other jobs by content."""
    started: hlc.Hlc
    usage: Usage
    runner: statement.Runner
    isolation: statement.Isolation = IN_PROCESS
    environment: str | None = None
    cost: Cost | None = None


@lru_cache(maxsize=1)
def python_runner() -> statement.Runner:
    """This process, as the runner of registered functions."""
    import platform

    here = f"{platform.system().lower()}-{platform.machine()}"
    name = f"antiphon on {platform.python_implementation()} {platform.python_version()}"
    return statement.Runner(name=name, version=installed_version(), platform=here)


def prove(session: Session, body: CompleteBody, run: Run) -> CompleteBody:
    """The completion with its proof."""
    author = session.author
    root = run.manifest.policy_root
    predicate = statement.Predicate(
        mesh=session.mesh,
        kind=body.kind,
        job=body.job,
        manifest=statement.manifest_digests(body.job, run.manifest),
        inputs=_inputs(() if isinstance(run.inputs, UnsetType) else run.inputs),
        worker=author.did,
        fence=body.fence,
        started=hlc.pack(run.started),
        ended=hlc.pack(author.now()),
        status=body.status,
        exit=body.exit,
        runner=run.runner,
        isolation=run.isolation,
        environment=run.environment,
        policy_root=None if root is UNSET else str(root),
        usage=run.usage,
        cost=run.cost,
    )
    said = statement.made_of(predicate, body.outputs)
    return structs.replace(body, proof=author.prove(codec.encode(said), said))


def _inputs(given: tuple[Input, ...]) -> tuple[statement.Subject, ...]:
    return tuple(
        statement.Subject(
            name=str(one.name) if one.name is not UNSET else f"input-{number}",
            digest=statement.Digests(blake3=one.hash.removeprefix("blake3:")),
        )
        for number, one in enumerate(given, start=1)
        if isinstance(one, manifest.BlobInput)
    )
