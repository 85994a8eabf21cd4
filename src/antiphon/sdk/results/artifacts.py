"""A job's outputs: lists them, fetches them, and compares files with what a proof names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from antiphon.core.families.jobs.state import Job
from antiphon.core.proof.output import Output
from antiphon.errors import Corrupt, Misconfigured, Rejected
from antiphon.runtime.artifacts.safe_file import parts_of
from antiphon.runtime.artifacts.store import OnProgress, check_file
from antiphon.runtime.caller import submission

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from antiphon.core.bundle import Report
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

LOOKS_AT_ONCE: Final = 8
"""Requests to the engine that are running at once while a list is made."""

Where = Literal["record", "mesh", "evicted", "gone"]


class Artifact(Struct, frozen=True, kw_only=True):
    """One output of a job, and where its bytes are."""

    kind: str
    job_id: str
    output: Output
    where: Where
    """In the log's own record, in the mesh's store, evicted, or missing."""
    until_ms: int | None = None
    """When the mesh's rules evict it; None where that has happened, or never will."""


async def artifacts_of(mesh: Mesh, handles: Sequence[JobHandle[Any]]) -> list[Artifact]:
    """The outputs of these jobs; of one that wrote none, nothing."""
    room = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(job: Job, output: Output) -> Artifact:
        async with room:
            where = await _where(mesh, job, output)
        until_ms = job.ended_ms + ttl_ms if where == "mesh" else None
        return Artifact(kind=job.kind, job_id=job.id, output=output, where=where, until_ms=until_ms)

    ttl_ms = (await mesh.session.sync_control()).rules.artifact_ttl_ms
    found: list[Artifact] = []
    for handle in handles:
        ended = submission.ended_of(await handle.lane())
        outputs = ended.outputs if ended is not None else ()
        found += await asyncio.gather(*(look(ended.job, output) for output in outputs if ended))
    return found


async def _where(mesh: Mesh, job: Job, output: Output) -> Where:
    if output.text is not None:
        return "record"
    if output.hash in job.evicted:
        return "evicted"
    is_stored = await mesh.artifacts.is_stored(output.hash, job=(job.kind, job.id))
    return "mesh" if is_stored else "gone"


async def evict(mesh: Mesh, handle: JobHandle[Any], name: str | None = None) -> list[Output]:
    """Evict one output, or all that are stored outside the log; which those are.

    Their records stay on the log. The coordinator's node removes the bytes a while later, unless
    another job needs them.
    unless another job needs them.
    """
    outputs = await handle.outputs() if name is None else [await output_named(handle, name)]
    stored = [output for output in outputs if output.text is None]
    for digest in dict.fromkeys(output.hash for output in stored):
        await submission.evict(mesh.session, handle.kind, handle.id, digest)
    return stored


async def output_named(handle: JobHandle[Any], name: str) -> Output:
    """A job's output by its name; `Rejected` with the names that exist."""
    outputs = await handle.outputs()
    for output in outputs:
        if output.name == name:
            return output
    names = ", ".join(repr(output.name) for output in outputs[:8]) or "none"
    raise Rejected(
        f"job {handle.id[:8]} has no output called {name!r}; it has {names}",
        reason="no_output",
        hint=f"antiphon artifacts {handle.id[:8]}",
    )


async def fetch_all(
    mesh: Mesh,
    handle: JobHandle[Any],
    directory: Path,
    *,
    on_progress: OnProgress | None = None,
) -> list[tuple[Output, Path]]:
    """Write every output of a job below a directory; `Rejected` if a name leads out of it.

    All names are checked before anything is written.
    """
    outputs = await handle.outputs()
    for output in outputs:
        parts_of(output.name)
    job = (handle.kind, handle.id)
    return [
        (
            output,
            await mesh.artifacts.fetch_below(output, directory, job=job, on_progress=on_progress),
        )
        for output in outputs
    ]


def compare(report: Report, directory: Path) -> list[Output]:
    """The outputs of a checked bundle that are files below a directory, all with the right bytes.

    `Rejected` where a file is missing or is not what the completion names. An output that
    travels in the record needs no file.
    """
    outputs = report.completion.body.outputs if report.completion is not None else ()
    same: list[Output] = []
    for output in outputs:
        path = directory.joinpath(*parts_of(output.name))
        if output.text is not None and not path.exists():
            continue
        try:
            check_file(output, path)
        except Misconfigured as problem:
            raise Rejected(
                f"the output {output.name!r} is not below {directory}: {problem.message}",
                reason="artifact",
                hint="antiphon export JOB --artifacts DIR writes them",
            ) from problem
        except Corrupt as problem:
            raise Rejected(
                f"{path} is not the output of the job: {problem.message}", reason="artifact"
            ) from problem
        same.append(output)
    return same


__all__ = [
    "Artifact",
    "Output",
    "artifacts_of",
    "compare",
    "evict",
    "fetch_all",
    "output_named",
]
