"""A job called, claimed and completed by hand, so that a test chooses what it wrote."""

from typing import Any

from antiphon.core import manifest
from antiphon.core.clock import hlc
from antiphon.core.cost.usage import Usage
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.proof.output import Output
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.proof_writer import Run, prove, python_runner
from antiphon.runtime.log.session import Session


async def called(
    session: Session, kind: str, *, inputs: tuple[Output, ...] = ()
) -> submission.Submitted:
    """A command's job that reads these."""
    content = manifest.author(
        {
            "command": ["true"],
            "timeout": 30,
            "inputs": [
                {"kind": "blobptr", "algo": "blake3", "hash": one.hash, "name": one.name}
                for one in inputs
            ],
        }
    )
    content = manifest.with_nonce(content, session.entropy.token(16).hex(), "random")
    return await submission.submit(session, ScheduleBody(kind=kind, manifest=content))


def proved(worker: Session, body: CompleteBody, content: manifest.Manifest) -> CompleteBody:
    """A completion with the proof of a short run that begins now."""
    run = Run(
        manifest=content,
        usage=Usage(wall_ms=1),
        runner=python_runner(),
    )
    return prove(worker, body, run)


async def completed(
    caller: Session, worker: Session, kind: str, *outputs: Output, **fields: Any
) -> submission.Submitted:
    """A job of the caller's that the worker did, with these outputs."""
    job = await called(caller, kind, **fields)
    await finished(worker, kind, job, *outputs)
    return job


async def finished(
    worker: Session, kind: str, job: submission.Submitted, *outputs: Output, prev: int = 0
) -> int:
    """Claim and complete a pending job, whose own subject ends at `prev`; the end's sequence."""
    await worker.sync_control()
    view = await worker.read_lane(kind, job.id, at_least=max(job.seq, prev))
    schedule = view.opened_at(job.seq)
    assert schedule is not None
    assert isinstance(schedule.op, JobSchedule)
    rules = worker.control.rules
    claim = ClaimBody(kind=kind, job=job.id, lease_ms=rules.lease_ms, begin=True)
    draft = worker.draft(JobClaim, claim, prev=prev)
    seq = await worker.commit(draft)
    body = CompleteBody(
        kind=kind,
        job=job.id,
        fence=hlc.pack(draft.op.hlc),
        status="succeeded",
        outputs=outputs,
        exit=0,
    )
    body = proved(worker, body, schedule.op.body.manifest)
    done = worker.draft(JobComplete, body, prev=seq)
    ended = await worker.commit(done)
    view = await worker.read_lane(kind, job.id, at_least=ended)
    assert view.lane.job is not None
    assert view.lane.job.outcome == "succeeded", view.verdict_of(done.op_id)
    return ended
