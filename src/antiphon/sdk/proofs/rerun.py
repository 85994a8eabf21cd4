"""Runs a verified job again, here, and compares the outputs (spec §9).

Equal bytes show that the command gives the same result on this machine, too. Different bytes do
not prove a lie: a command may depend on the clock, on random numbers, or on a program that is
another version here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.assembly.rerun import FolderBlobs, run_again
from antiphon.core.derivations.given_results import with_results
from antiphon.core.families.jobs.ops import CompleteBody, JobOffer, JobSchedule, Result
from antiphon.core.proof import statement
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Rejected
from antiphon.runtime.executors.executor import Assignment
from antiphon.sdk.worker import command_terms

if TYPE_CHECKING:
    from antiphon.core.bundle import Report
    from antiphon.core.manifest import Manifest
    from antiphon.sdk.mesh import Mesh

_NOT_RUN = frozenset({"input", "secret", "network", "sandbox", "command"})


class Rerun(Struct, frozen=True, kw_only=True):
    """The comparison."""

    agreed: tuple[str, ...]
    """Outputs with the same bytes."""
    differed: tuple[str, ...]
    missing: tuple[str, ...]
    """Outputs that were not written this time."""
    further: tuple[str, ...]
    exit_then: int | None
    exit_now: int | None
    same_program: bool | None
    """Whether the program is the same file; None where one of the two is unknown."""
    isolation: statement.Isolation

    @property
    def is_same(self) -> bool:
        """Whether everything is as the worker reported it."""
        others = self.differed or self.missing or self.further
        return not others and self.exit_then == self.exit_now


async def rerun(
    report: Report,
    *,
    inputs: Path | None = None,
    mesh: Mesh | None = None,
    network: bool = False,
) -> Rerun:
    """Run a bundle's command in the sandbox of this machine.

    Its inputs are looked for below a directory, by content, and then on the mesh. `Rejected` if
    it cannot be run here.
    """
    completion, content = report.completion, _manifest_of(report)
    if completion is None:
        raise Rejected("no run of this job was completed: there is nothing to compare with")
    body = completion.body
    terms = command_terms([body.kind], mesh.home if mesh is not None else None, network=network)
    behind = mesh.connection.engine.blobs if mesh is not None else None
    content, texts = with_results(content, _results_of(report))
    assignment = Assignment(
        kind=body.kind, job_id=body.job, fence=body.fence, attempt=1, manifest=content, texts=texts
    )
    ran = await run_again(assignment, report.control, FolderBlobs(inputs, behind), terms)
    if ran.failure is not None and ran.failure.name in _NOT_RUN and ran.exit is None:
        raise Rejected(f"it cannot be run again here: {ran.failure.message}", reason="rerun")
    then = {output.name: output.hash for output in body.outputs}
    now = {output.name: output.hash for output in ran.outputs}
    return Rerun(
        agreed=tuple(name for name in then if now.get(name) == then[name]),
        differed=tuple(name for name in then if name in now and now[name] != then[name]),
        missing=tuple(name for name in then if name not in now),
        further=tuple(name for name in now if name not in then),
        exit_then=body.exit,
        exit_now=ran.exit,
        same_program=_is_same_program(body, ran.runner),
        isolation=ran.isolation,
    )


def _manifest_of(report: Report) -> Manifest:
    for opened, _ in report.lane:
        if opened.seq == report.job.scheduled_seq and isinstance(opened.op, JobSchedule):
            return opened.op.body.manifest
    raise Rejected("the bundle does not contain the schedule of its job", reason="bundle")


def _results_of(report: Report) -> tuple[Result, ...]:
    """The results of other jobs that came with the job's first offer."""
    for opened, verdict in report.lane:
        if isinstance(opened.op, JobOffer) and verdict is Verdict.OK:
            return opened.op.body.results
    return ()


def _is_same_program(body: CompleteBody, runner: statement.Runner) -> bool | None:
    if body.proof is None:
        return None
    then = body.proof.runner.digest
    return None if then is None or runner.digest is None else then == runner.digest


__all__ = ["Rerun", "rerun"]
