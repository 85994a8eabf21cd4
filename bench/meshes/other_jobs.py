"""Jobs that a worker under measurement has nothing to do with, written as their parties would."""

from __future__ import annotations

from typing import Final

from antiphon.core import manifest
from antiphon.core.clock import hlc
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.runtime.executors.handler_call import call_text, inline_output
from antiphon.runtime.log.session import Session

OTHER: Final = "bench.other"


async def run_other_job(session: Session, number: int, *, kind: str = OTHER) -> None:
    """One other job from its call to its end."""
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number,), {})], "timeout": 60}
    )
    job_id, log = manifest.job_id(content), session.log
    called = session.draft(JobSchedule, ScheduleBody(kind=kind, manifest=content), prev=0)
    await log.append(called.subject, called.payload, message_id=called.op_id, expected_last=0)
    claim = ClaimBody(kind=kind, job=job_id, lease_ms=30_000, begin=True)
    claimed = session.draft(JobClaim, claim, prev=0)
    seq = await log.append(
        claimed.subject, claimed.payload, message_id=claimed.op_id, expected_last=0
    )
    done = CompleteBody(
        kind=kind,
        job=job_id,
        fence=hlc.pack(claimed.op.hlc),
        status="succeeded",
        outputs=(inline_output("result", "0", "application/json"),),
    )
    ended = session.draft(JobComplete, done, prev=seq)
    await log.append(ended.subject, ended.payload, message_id=ended.op_id, expected_last=seq)
