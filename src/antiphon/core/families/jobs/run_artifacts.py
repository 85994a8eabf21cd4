"""What the runs of a job store before its end: steps, parts of streams, snapshots, escalations.

The state has counts and the digests of what is stored outside the log. What each of them is called
and says is in the records, which whoever needs it reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.state import Job, RunArtifacts
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict

NONE = RunArtifacts()


def count_of(job: Job, sort: str) -> int:
    """How many of this sort a job has: the number of the next one."""
    found = job.artifacts or NONE
    match sort:
        case "step":
            return found.steps
        case "part":
            return found.parts
        case "escalation":
            return found.escalations
        case _:
            return found.snapshots


def with_artifact(job: Job, op: ops.JobArtifact) -> Job | Verdict:
    """The job with one more of them; its holder wrote it."""
    body, before = op.body, job.artifacts or NONE
    number = count_of(job, body.as_)
    if body.n != number or number >= ops.MAX_ARTIFACTS[body.as_] or not body.has_value:
        return Verdict.ARTIFACT
    text_bytes = before.text_bytes + (len(body.value.encode()) if body.value is not None else 0)
    outside = before.outside
    if body.digest is not None and body.digest not in outside:
        outside = (*outside, body.digest)
    if text_bytes > ops.MAX_ARTIFACT_TEXTS or len(outside) > ops.MAX_ARTIFACTS_OUTSIDE:
        return Verdict.ARTIFACT
    found = RunArtifacts(
        steps=before.steps + (body.as_ == "step"),
        parts=before.parts + (body.as_ == "part"),
        snapshots=before.snapshots + (body.as_ == "snapshot"),
        escalations=before.escalations + (body.as_ == "escalation"),
        text_bytes=text_bytes,
        outside=outside,
        snapshots_digest=before.snapshots_digest,
    )
    if body.as_ == "snapshot":
        content = body.digest or digest((body.value or "").encode())
        found = replace(found, snapshots_digest=_next(before.snapshots_digest, content))
    return replace(job, artifacts=found, hlc=op.hlc, hlc_author=op.author)


def snapshots_digest(contents: Iterable[str]) -> str:
    """The digest of these snapshots, by the digest of each, as a state has it."""
    so_far = ""
    for content in contents:
        so_far = _next(so_far, content)
    return so_far


def _next(so_far: str, content: str) -> str:
    return digest(f"{so_far} {content}".encode())


def ended(job: Job) -> RunArtifacts | None:
    """What an ended job still says of them; what is outside the log is evicted with its outputs."""
    if job.artifacts is None or not job.artifacts.outside:
        return job.artifacts
    return replace(job.artifacts, outside=())
