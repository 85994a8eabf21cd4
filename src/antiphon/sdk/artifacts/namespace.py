"""`mesh.artifacts`: stores files, lists and fetches what jobs wrote (docs/do/artifacts.md)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from antiphon.core.families.jobs.state import Job
from antiphon.core.proof.output import Output
from antiphon.errors import Corrupt, Misconfigured, Rejected
from antiphon.runtime.artifacts.safe_file import parts_of
from antiphon.runtime.artifacts.store import INLINE_BYTES, OnProgress, check_file
from antiphon.runtime.caller import submission
from antiphon.sdk.tempo.tempo_history import tempo_history

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from antiphon.core.bundle import Report
    from antiphon.core.tempo.phases import Phase
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.handle import JobHandle

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
    at_ms: int
    """When the op that names it was committed."""
    hlc: str
    """That op's timestamp."""
    beat: int
    """The beat of its bar, as it was counted then."""
    phase: Phase


class Artifacts:
    """The files of a mesh, by content."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.artifacts`."""
        self._connection = connection

    async def keep(
        self,
        path: Path | str,
        name: str | None = None,
        *,
        on_progress: OnProgress | None = None,
        inline_bytes: int = INLINE_BYTES,
    ) -> Output:
        """Store a file's content, so that jobs can read it; its name, digests and size.

        Text of at most `inline_bytes` is in the output itself. Without a connection the content
        waits in the outbox, where the mesh was opened so (docs/do/offline.md).
        """
        file, outbox = Path(path), self._connection.keeping
        kept = await self._connection.artifacts.keep(
            file, name or file.name, on_progress=on_progress, inline_bytes=inline_bytes
        )
        if outbox is not None and kept.text is None:
            outbox.keep_file(kept)
        return kept

    async def fetch(
        self,
        output: Output | str,
        to: Path | str,
        *,
        of: JobHandle[Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Write an output's content to a file; members must name its job."""
        job = (of.kind, of.id) if of is not None else None
        store = self._connection.artifacts
        await store.fetch(output, Path(to), job=job, on_progress=on_progress)

    async def fetch_below(
        self,
        output: Output,
        directory: Path,
        *,
        of: JobHandle[Any],
        on_progress: OnProgress | None = None,
    ) -> Path:
        """Write an output of a job under its own name below a directory; its path."""
        job, store = (of.kind, of.id), self._connection.artifacts
        return await store.fetch_below(output, directory, job=job, on_progress=on_progress)

    def stream(self, output: Output, *, of: JobHandle[Any]) -> AsyncIterator[bytes]:
        """An output's content, piece by piece; `Corrupt` at the end if it has another digest."""
        return self._connection.artifacts.stream(output, job=(of.kind, of.id))

    async def fetch_all(
        self, of: JobHandle[Any], directory: Path, *, on_progress: OnProgress | None = None
    ) -> list[tuple[Output, Path]]:
        """Write every output of a job below a directory; `Rejected` if a name leads out of it.

        All names are checked before anything is written.
        """
        outputs = await of.outputs()
        for output in outputs:
            parts_of(output.name)
        return [
            (one, await self.fetch_below(one, directory, of=of, on_progress=on_progress))
            for one in outputs
        ]

    async def _where(self, job: Job, output: Output) -> Where:
        if output.text is not None:
            return "record"
        if output.hash in job.evicted:
            return "evicted"
        store = self._connection.artifacts
        is_stored = await store.is_stored(output.hash, job=(job.kind, job.id))
        return "mesh" if is_stored else "gone"

    async def evict(self, of: JobHandle[Any], name: str | None = None) -> list[Output]:
        """Evict one output of a job, or all that are stored outside the log; which those are.

        Their records stay on the log. The coordinator's node removes the bytes a while later,
        unless another job needs them.
        """
        outputs = await of.outputs() if name is None else [await output_named(of, name)]
        stored = [output for output in outputs if output.text is None]
        for digest in dict.fromkeys(output.hash for output in stored):
            await submission.evict(self._connection.session, of.kind, of.id, digest)
        return stored

    async def list(self, handles: Sequence[JobHandle[Any]]) -> list[Artifact]:
        """The outputs of these jobs, and where their bytes are; of one that wrote none, nothing."""
        room = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def look(job: Job, hlc: str, output: Output) -> Artifact:
            async with room:
                where = await self._where(job, output)
            stamp = stamps.at(job.ended_ms)
            return Artifact(
                kind=job.kind,
                job_id=job.id,
                output=output,
                where=where,
                until_ms=job.ended_ms + ttl_ms if where == "mesh" else None,
                at_ms=job.ended_ms,
                hlc=hlc,
                beat=stamp.beat,
                phase=stamp.phase,
            )

        stamps = await tempo_history(self._connection)
        ttl_ms = (await self._connection.session.sync_control()).rules.artifact_ttl_ms
        found: list[Artifact] = []
        for handle in handles:
            ended = submission.ended_of(await handle.lane())
            if ended is not None:
                looks = (look(ended.job, ended.hlc, output) for output in ended.outputs)
                found += await asyncio.gather(*looks)
        return found


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
    "Artifacts",
    "Output",
    "compare",
    "output_named",
]
