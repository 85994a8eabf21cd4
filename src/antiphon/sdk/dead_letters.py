"""Dead letters: jobs that ended without a result, why, and whether they were retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.families.jobs.columns import DEAD
from antiphon.core.families.jobs.ops import (
    JOB,
    Failure,
    JobCancel,
    JobComplete,
    JobSchedule,
    JobYield,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import Job, JobLane, job_key
from antiphon.core.history.tenures import lost_tenures, lost_words
from antiphon.core.policy import retry as retry_policy
from antiphon.core.record.ids import short_node
from antiphon.core.record.op import Op
from antiphon.runtime.caller.retry import RetryLinks
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.replica.lane_lists import LaneList
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.verdict import Verdict
    from antiphon.runtime.replica.replica import Replica


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A job that ended without a result."""

    job: Job
    error: Failure | None
    """The error of its last attempt, if one was reported."""
    note: str
    """Why, in words."""
    retried_as: str | None
    """The id of the job that retried it."""

    @property
    def sort(self) -> str:
        """How it ended, as jobs of one group did: `failed: ValueError`."""
        return ": ".join(filter(None, (self.job.outcome, self.error.name if self.error else "")))

    @property
    def why(self) -> str:
        """The same, and the error's message: what people see."""
        return ": ".join(filter(None, (self.sort, self.note)))


FORGOTTEN: Final = "forgotten"
DEAD_JOBS: Final = LaneList[Job]("jobs", JobLane, JOB, "needs", value=DEAD, is_newest_first=True)
"""Jobs that ended without a result, the newest first."""


def letters_of(
    replica: Replica, jobs: Iterable[Job], name: Callable[[str], str] = short_node
) -> list[DeadLetter]:
    """What became of each of these jobs, which ended without a result; with the names of nodes."""
    return [_letter(replica, job, name) for job in jobs]


def _letter(replica: Replica, job: Job, name: Callable[[str], str]) -> DeadLetter:
    letter = end_of(replica, job, name)
    call = _op_at(replica, job.scheduled_seq) if letter.note != FORGOTTEN else None
    ahead = _retry_in(replica, job, call.body) if isinstance(call, JobSchedule) else None
    return replace(letter, retried_as=ahead)


def end_of(replica: Replica, job: Job, name: Callable[[str], str] = short_node) -> DeadLetter:
    """How a job ended, not whether it was retried."""
    if replica.ask(ReplicaErasures).about(job) is not None:
        return DeadLetter(job=job, error=None, note=FORGOTTEN, retried_as=None)
    end = _op_at(replica, job.ended_seq)
    error = end.body.error if isinstance(end, JobComplete | JobYield) else None
    note = _note(job, end, error)
    if not note and job.outcome == "exhausted":
        note = lost_words(lost_tenures(_history(replica, job)), name)
    return DeadLetter(job=job, error=error, note=note, retried_as=None)


def _history(replica: Replica, job: Job) -> Iterator[tuple[OpenedRecord, Verdict]]:
    for stored in replica.lane_records(job_key(job.kind, job.id)):
        yield open_stored(replica.protocol, replica.mesh, stored.record), stored.verdict


def _note(job: Job, end: Op | None, error: Failure | None) -> str:
    if error is not None:
        return error.message
    match job.outcome:
        case "expired":
            return "no worker claimed it in time"
        case "cancelled" if isinstance(end, JobCancel) and end.body.reason:
            return end.body.reason
        case _:
            return ""


def _op_at(replica: Replica, seq: int) -> Op | None:
    stored = replica.record(seq)
    if stored is None:
        return None
    return open_stored(replica.protocol, replica.mesh, stored.record).op


def _retry_in(replica: Replica, job: Job, body: ScheduleBody) -> str | None:
    retry = retry_policy.retry_id(body, job.id)
    return retry if replica.ask(ReplicaJobs).job(job.kind, retry) is not None else None


__all__ = ["DEAD_JOBS", "DeadLetter", "RetryLinks", "end_of", "letters_of"]
