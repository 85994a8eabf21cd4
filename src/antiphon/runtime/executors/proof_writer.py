"""Writes the proof of a run: what the worker that finished it signs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from antiphon.core import manifest
from antiphon.core.clock import hlc
from antiphon.core.cost.job_cost import Cost
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import CompleteBody
from antiphon.core.manifest import Input
from antiphon.core.proof import statement
from antiphon.runtime.identity.host_clock import installed_version

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session


class Run(Struct, frozen=True, kw_only=True):
    """What is known about one run besides its result."""

    manifest: manifest.Manifest
    inputs: tuple[Input, ...] | UnsetType = UNSET
    """The manifest's, with results of other jobs by content."""
    usage: Usage
    runner: statement.Runner
    isolation: statement.Isolation = statement.IN_PROCESS
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
    author, root = session.author, run.manifest.policy_root
    proof = statement.Proof(
        sig=statement.UNSIGNED,
        inputs=_inputs(() if isinstance(run.inputs, UnsetType) else run.inputs),
        ended=hlc.pack(author.now()),
        runner=run.runner,
        isolation=run.isolation,
        environment=run.environment,
        policy_root=None if root is UNSET else str(root),
        usage=run.usage,
        cost=run.cost,
    )
    return author.prove(body, proof)


def _inputs(given: tuple[Input, ...]) -> tuple[statement.Subject, ...]:
    return tuple(
        statement.Subject(
            name=str(one.name) if one.name is not UNSET else f"input-{number}",
            digest=statement.Digests(blake3=one.hash.removeprefix("blake3:")),
        )
        for number, one in enumerate(given, start=1)
        if isinstance(one, manifest.BlobInput)
    )
