"""Who may write about a job without a chain of delegations (spec §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.authority.chain_check import is_revoked_since
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
    job by its replicas. It may offer any job; the submitter and the coordinator may cancel a job
    and evict its outputs.
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
            if job is None or job.scheduler != op.author:
                return False
            auth, since = job.call_auth, job.scheduled_seq
            return not is_revoked_since(control, op.author, auth, since=since, seq=at.seq)
        case _:
            return False
