"""Who may write about a job without a chain of delegations (spec §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.authority.chain_check import is_revoked_since, leads_to_author
from antiphon.core.authority.parties import party_of
from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.state import Job
from antiphon.core.family import At
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op


def entitled(control: Control, job: Job | None, op: Op, at: At) -> Verdict | bool:
    """Some ops may be authorised without a chain, by the author's part in the job or the mesh.

    The coordinator alone may submit replicas of a job and what follows from a plan, and resolve a
    job by its replicas. It may offer any job; the submitter's party and the coordinator may cancel
    a job and evict its outputs.
    """
    match op:
        case ops.JobSchedule(body=body) if body.is_derived:
            return op.author == control.coordinator or Verdict.NOT_COORDINATOR
        case ops.JobResolve():
            return op.author == control.coordinator or Verdict.NOT_COORDINATOR
        case ops.JobOffer():
            return op.author == control.coordinator
        case ops.JobCancel() | ops.JobEvict():
            if op.author == control.coordinator:
                return True
            return job is not None and _is_submitters(control, job, op, at)
        case _:
            return False


def _is_submitters(control: Control, job: Job, op: Op, at: At) -> bool:
    """Whether an op is by the party that submitted a job, whichever of its keys signed it.

    The delegations of another key than the job's need not grant the command. They show whose key it
    is, and have to hold now.
    """
    since = job.scheduled_seq
    if op.author != job.scheduler:
        submitter = party_of(control, job.scheduler, job.call_auth, before=since)
        if not submitter or party_of(control, op.author, op.auth, before=at.seq) != submitter:
            return False
        if not leads_to_author(control, op, seq=at.seq, commit_ms=at.commit_ms):
            return False
    return not is_revoked_since(control, job.scheduler, job.call_auth, since=since, seq=at.seq)
