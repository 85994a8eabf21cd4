"""The tenures of a job for a timeline: who held it when, and how each hold ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from antiphon.core.families.jobs.ops import (
    JobClaim,
    JobComplete,
    JobExpire,
    JobYield,
)
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.runtime.log.lane_reader import Judged

End = Literal["", "succeeded", "failed", "gave it back", "lost its lease"]


class Tenure(Struct, frozen=True, kw_only=True):
    """One worker's hold of a job."""

    worker: str
    since_ms: int
    until_ms: int
    """When it ended; of one that lasts, when its lease ends."""
    renewed_ms: tuple[int, ...] = ()
    end: End = ""
    """How it ended; empty: it lasts."""


class Refused(Struct, frozen=True):
    """A record about the job that took no effect."""

    by: str
    at_ms: int
    verdict: str


class Timeline(Struct, frozen=True, kw_only=True):
    """A job's life."""

    begun_ms: int
    ended_ms: int
    """0: it has not ended."""
    tenures: list[Tenure]
    refused: list[Refused]


def timeline(history: Iterable[Judged]) -> Timeline:
    """What the records of a job's lane say."""
    found, tenures, refused = list(history), list[Tenure](), list[Refused]()
    for judged in found:
        op, at_ms = judged.opened.op, judged.opened.commit_ms
        if op is None or not judged.verdict.is_accepted:
            if op is not None:
                refused.append(Refused(op.author, at_ms, judged.verdict.value))
            continue
        if isinstance(op, JobClaim):
            _claimed(tenures, op, at_ms)
        elif isinstance(op, JobComplete | JobYield | JobExpire) and tenures:
            tenures[-1] = structs.replace(tenures[-1], until_ms=at_ms, end=_end(op))
    is_over = bool(tenures) and tenures[-1].end in {"succeeded", "failed"}
    return Timeline(
        begun_ms=found[0].opened.commit_ms if found else 0,
        ended_ms=tenures[-1].until_ms if is_over else 0,
        tenures=tenures,
        refused=[one for one in refused if one.verdict != Verdict.EXISTS],
    )


def _claimed(tenures: list[Tenure], op: JobClaim, at_ms: int) -> None:
    until_ms = op.hlc[0] + op.body.lease_ms
    last = tenures[-1] if tenures else None
    if last is not None and not last.end and last.worker == op.author:
        renewed = (*last.renewed_ms, at_ms)
        tenures[-1] = structs.replace(last, renewed_ms=renewed, until_ms=until_ms)
    else:
        tenures.append(Tenure(worker=op.author, since_ms=at_ms, until_ms=until_ms))


def _end(op: JobComplete | JobYield | JobExpire) -> End:
    if isinstance(op, JobComplete):
        return "succeeded" if op.body.status == "succeeded" else "failed"
    return "gave it back" if isinstance(op, JobYield) else "lost its lease"
