"""A sentence for each op about a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.derivation import Cause, Tick

if TYPE_CHECKING:
    from antiphon.core.record.op import Op

DEGRADED: Final = "degraded"
"""The output that says why a result is not what the handler would have made in its own time."""
SHORT: Final = 8
"""Digits of a job id that people see."""


def sentence(op: Op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    match op:
        case ops.JobSchedule(body=body):
            return _submitted(op.hlc[0], body)
        case ops.JobOffer(body=body):
            return f"offered it{_results(len(body.results))}"
        case ops.JobClaim(body=body) if body.fence is not None:
            return f"renewed the lease for {_seconds(body.lease_ms)}{_kept(body)}"
        case ops.JobClaim(body=body):
            began = " and started it" if body.begin else ""
            return f"claimed it for {_seconds(body.lease_ms)}{began}"
        case ops.JobStart():
            return "started it"
        case ops.JobComplete(body=body):
            why = f": {body.error.name}: {body.error.message}" if body.error else ""
            return f"completed it, {body.status}{why}{_degraded(body)}"
        case ops.JobYield(body=body):
            return f"gave it back{_reason(body)}"
        case _:
            return _end(op)


def _end(op: Op) -> str:
    match op:
        case ops.JobExpire(body=body):
            what = "the lease" if body.fence is not None else "the wait"
            return f"expired {what}"
        case ops.JobResolve(body=body):
            named = ", ".join(child[:SHORT] for child, _ in body.children)
            return f"resolved it, succeeded: its replicas {named} agree"
        case ops.JobCancel(body=body):
            return f"cancelled it{': ' + body.reason if body.reason else ''}"
        case ops.JobEvict(body=body):
            short = body.hash.removeprefix("blake3:")[:12]
            return f"evicted the output {short}: its bytes may be deleted"
        case _:
            return f"wrote {op.type_name()}"


def _submitted(wall_ms: int, body: ops.ScheduleBody) -> str:
    what = f"{body.kind} with {body.priority} priority"
    if body.replica is not None:
        what = f"it as replica {body.replica.index + 1} of {body.replica.of[:SHORT]}"
    return f"submitted {what}{_origin(body)}{_wait(wall_ms, body)}"


def _origin(body: ops.ScheduleBody) -> str:
    match body.derived:
        case Tick():
            return ", by a plan's cron"
        case Cause(kind=kind, job=job):
            return f", by a plan, since {kind} {job[:SHORT]} ended"
        case None:
            return ""


def _wait(wall_ms: int, body: ops.ScheduleBody) -> str:
    if body.replicas is not None:
        return f"; {body.quorum} of {body.replicas} replicas have to agree"
    if body.predecessors:
        return f"; it begins after {_jobs(len(body.predecessors))}"
    if body.concurrency is not None:
        return f"; it waits for room under {body.concurrency}"
    if body.not_before is None:
        return ""
    return f"; it may begin {_seconds(max(body.not_before - wall_ms, 0))} later"


def _jobs(count: int) -> str:
    return "another job" if count == 1 else f"{count} other jobs"


def _results(count: int) -> str:
    if not count:
        return ""
    return " with a result" if count == 1 else f" with {count} results"


def _kept(body: ops.ClaimBody | ops.YieldBody) -> str:
    """What a renewal or a yield says beside."""
    words = ""
    if isinstance(body, ops.ClaimBody) and body.beats_left is not None:
        words = f", with {body.beats_left} beats left"
    if body.checkpoint is not None:
        words += f", and stored a checkpoint of {body.checkpoint.size:,} bytes"
    if isinstance(body, ops.ClaimBody) and body.progress is not None:
        words += f", {body.progress.permille // 10}% done"
    return words


def _degraded(body: ops.CompleteBody) -> str:
    """Why the result is not what the handler would have made in its own time."""
    why = next((one.text for one in body.outputs if one.name == DEGRADED), None)
    return f", degraded: {why}" if why else ""


def _reason(body: ops.YieldBody) -> str:
    count = len(body.after)
    if count:
        return f" until {_jobs(count)} {'has' if count == 1 else 'have'} ended{_kept(body)}"
    why = f" ({body.error.name}: {body.error.message})" if body.error else ""
    if body.reason == "later":
        return f" for another try {_seconds(body.retry_after_ms)} later{why}{_kept(body)}"
    return f", reason {body.reason}{why}{_kept(body)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
