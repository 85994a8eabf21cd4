"""Reads the model calls of a job: the records of its lane, and the snapshots that they name.

What is read is checked: a snapshot has the digest that its record names, and says that it is of
just that job, fence, worker and number.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from antiphon.core.families.jobs.ops import ArtifactBody, JobArtifact
from antiphon.core.inference.snapshot import Snapshot, decode
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, Malformed, Rejected

if TYPE_CHECKING:
    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.log.lane_reader import JobView

READS_AT_ONCE: Final = 8

Where = Literal["record", "mesh", "evicted", "gone", "false"]


class ModelCall(Struct, frozen=True, kw_only=True):
    """One model call of a job, as its worker recorded it."""

    kind: str
    job_id: str
    number: int
    """From 0, in the order of the log."""
    model: str
    """The model that was asked for; of a call that could not be parsed, `raw`."""
    worker: str
    """The key that signed the record."""
    fence: str
    at_ms: int
    """When the record was committed."""
    hash: str
    """The digest of the snapshot; empty if it is in the record itself."""
    where: Where
    """Where the snapshot is. `false`: what is stored is no snapshot of this call."""
    snapshot: Snapshot | None
    """None if it is evicted, gone or false."""


async def calls_on(view: JobView, artifacts: Artifacts | None) -> list[ModelCall]:
    """The model calls of a job, oldest first; none if it was not audited, or made none."""
    job = view.lane.job
    if job is None or job.artifacts is None or not job.artifacts.snapshots:
        return []
    room = asyncio.Semaphore(READS_AT_ONCE)

    async def read(body: ArtifactBody, author: str, at_ms: int) -> ModelCall:
        async with room:
            where, found = await _read(job, body, author, artifacts)
        return ModelCall(
            kind=job.kind,
            job_id=job.id,
            number=body.n,
            model=body.name,
            worker=author,
            fence=body.fence,
            at_ms=at_ms,
            hash=body.digest or "",
            where=where,
            snapshot=found,
        )

    stored = [
        read(op.body, op.author, one.opened.commit_ms)
        for one in view.history
        if one.verdict is Verdict.OK
        and isinstance(op := one.opened.op, JobArtifact)
        and op.body.as_ == "snapshot"
    ]
    return list(await asyncio.gather(*stored))


async def _read(
    job: Job, body: ArtifactBody, author: str, artifacts: Artifacts | None
) -> tuple[Where, Snapshot | None]:
    where: Where = "record"
    raw = (body.value or "").encode()
    if body.digest is not None:
        if body.digest in job.evicted:
            return "evicted", None
        if artifacts is None:
            return "gone", None
        where = "mesh"
        most = min(body.size or 0, artifacts.value_bytes)
        try:
            raw = await artifacts.read(body.digest, job=(job.kind, job.id), max_bytes=most)
        except Corrupt:
            return "false", None
        except Rejected as refused:
            return ("gone" if refused.reason == "no_blob" else "false"), None
    try:
        found = decode(raw)
    except Malformed:
        return "false", None
    said = found.source
    says = (said.kind, said.job, said.fence, said.call, said.worker)
    if says != (job.kind, job.id, body.fence, body.n, author):
        return "false", None
    return where, found
