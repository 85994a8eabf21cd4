"""What needs somebody's attention, as far as it follows from a replica (docs/do/attention.md).

Open questions, jobs that asked for somebody (`emit` in a score), jobs that ended without a result
and were not retried, documents with conflicts, and the alarms of the newest bar. It is derived each
time: what resolves a thing ends it. What a node's services have set aside, and a coordinator that
does not answer, is in the node's own table (`runtime/attention`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.families.jobs.ops import DEGRADED, JobArtifact, JobComplete
from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.core.policy.retry import is_dead_letter
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.attention.attention_table import Attention
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.replica.job_pages import EVERYTHING, JobFilter, JobPages, is_visible
from antiphon.runtime.replica.replica import LaneQueries
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.sdk.dead_letters import letters_of
from antiphon.sdk.memory.memory_space import ReplicaDocuments
from antiphon.sdk.questions.namespace import ReplicaQuestions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from antiphon.core.opened_record import OpenedRecord
    from antiphon.ports import Record
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection

QUESTIONS: Final = "questions"
ESCALATIONS: Final = "escalations"
JOBS: Final = "dead jobs"
CONFLICTS: Final = "conflicts"
ALARMS: Final = "alarms"
COORDINATOR: Final = "coordinator"
ESCALATION: Final = b'"as":"escalation"'
MOST_DEAD: Final = 100
"""Of the newest jobs without a result, and of those that asked for somebody, so many are looked at.
"""
MOST: Final = 500
RESOLVED_BY: Final = {
    QUESTIONS: "antiphon answer {name}",
    ESCALATIONS: "antiphon show {name}",
    JOBS: "antiphon show {name}; antiphon retry {name}",
    CONFLICTS: "antiphon memory conflicts {first}",
    ALARMS: "antiphon report",
    COORDINATOR: "antiphon coordinator NODE names another",
}
"""What to type about an item; about what services have set aside: `doctor`."""
SHORT_ID: Final = 8
ALARM_OLD_MS: Final = 15 * 60_000
"""Nobody has made a report for so long: what it said may be over."""
DEGRADED_MS: Final = 24 * 3_600_000
"""How long a result that is not what it should be needs somebody."""
ENDS: Final = {
    QUESTIONS: "an answer, or the end of its time",
    ESCALATIONS: "a result that is not degraded, a cancellation, or a day after its end",
    JOBS: "a retry",
    CONFLICTS: "a write that resolves it",
    ALARMS: "a bar without it",
    COORDINATOR: "its answer, or another coordinator",
}


def ends_with(one: Attention) -> str:
    """What ends it, in words."""
    return ENDS.get(one.service, "the service, which tries again")


class ReplicaEscalations(LaneQueries[Job], family="jobs", lane=JobLane):
    """Queries for jobs that have asked for somebody."""

    def newest(self, *, limit: int) -> list[Job]:
        """Those that are open or have a result, the newest first."""
        return self._found("escalated_ms is not null order by escalated_ms desc limit ?", limit)


def derived(
    connection: Connection, replica: Replica, visible: Sequence[str] = EVERYTHING
) -> list[Attention]:
    """What needs attention now, of the kinds that whoever asks may see; alarms are about all."""
    replica.flush()
    found = [
        *_questions(replica),
        *_escalations(replica, connection.session.wall.now_ms()),
        *_dead_jobs(replica, visible, holdings_of(connection.session).name),
        *_conflicts(replica),
    ]
    if EVERY_KIND in visible:
        return [*found, *_alarms(replica, connection.session.wall.now_ms())]
    return [one for one in found if is_visible(one.item.split(" ", 1)[0], visible)]


def resolved_by(one: Attention) -> str:
    """What to type about an item."""
    parts = one.item.split() or [""]
    words = RESOLVED_BY.get(one.service, "antiphon doctor")
    return words.format(first=parts[0], name=parts[-1][:SHORT_ID])


def _questions(replica: Replica) -> Iterator[Attention]:
    for job in replica.ask(ReplicaQuestions).open(limit=MOST):
        text = job.question.text if job.question is not None else ""
        item = f"{job.kind} {job.id}"
        yield Attention(QUESTIONS, item, job.scheduler, text, job.scheduled_ms, 1)


def _escalations(replica: Replica, now_ms: int) -> Iterator[Attention]:
    for job in replica.ask(ReplicaEscalations).newest(limit=MOST_DEAD):
        if job.is_terminal:
            ended = replica.record(job.ended_seq)
            op = _opened(replica, ended.record).op if ended is not None else None
            outputs = op.body.outputs if isinstance(op, JobComplete) else ()
            is_degraded = any(one.name == DEGRADED for one in outputs)
            if not is_degraded or job.ended_ms < now_ms - DEGRADED_MS:
                continue
        yield from _escalation(replica, job)


def _escalation(replica: Replica, job: Job) -> Iterator[Attention]:
    """What its runs have said: the newest of it, since the first."""
    said = [
        (stored.record, _opened(replica, stored.record).op)
        for stored in replica.lane_records(job_key(job.kind, job.id))
        if stored.verdict is Verdict.OK and ESCALATION in stored.record.payload
    ]
    found = [(record, op) for record, op in said if isinstance(op, JobArtifact)]
    if found:
        first, (_, op) = found[0][0], found[-1]
        is_forgotten = replica.ask(ReplicaErasures).about(job) is not None
        yield Attention(
            ESCALATIONS,
            f"{job.kind} {job.id}",
            job.scheduler,
            "forgotten" if is_forgotten else f"{op.body.name}: {op.body.value or ''}",
            first.commit_ms,
            len(found),
            op.author,
        )


def _opened(replica: Replica, record: Record) -> OpenedRecord:
    return open_stored(replica.protocol, replica.mesh, record)


def _dead_jobs(
    replica: Replica, visible: Sequence[str], name: Callable[[str], str]
) -> Iterator[Attention]:
    ended = JobFilter(states=(State.FAILED, State.ABORTED))
    newest = replica.ask(JobPages).every(ended, visible=visible, limit=MOST_DEAD)
    # A question that nobody answered is an answer to whoever asked; of replicas, the parent counts.
    dead = [
        job for job in newest if is_dead_letter(job) and job.question is None and not job.replica_of
    ]
    for letter in letters_of(replica, dead, name):
        if letter.retried_as is None:
            job = letter.job
            words = [job.outcome, letter.error.name if letter.error else "", letter.note]
            why = ": ".join(word for word in words if word)
            item = f"{job.kind} {job.id}"
            yield Attention(JOBS, item, job.scheduler, why, job.ended_ms, max(job.attempts, 1))


def _conflicts(replica: Replica) -> Iterator[Attention]:
    for space, document in replica.ask(ReplicaDocuments).all_conflicts(limit=MOST):
        count = len(document.siblings)
        why = f"{count} {'value waits' if count == 1 else 'values wait'} for a decision"
        item = f"{space} {document.key}"
        yield Attention(CONFLICTS, item, document.author, why, document.hlc[0], 1)


def _alarms(replica: Replica, now_ms: int) -> Iterator[Attention]:
    for report in replica.reports.newest(limit=1):
        if report.end_ms >= now_ms - ALARM_OLD_MS:
            for alarm in report.alarms:
                yield Attention(ALARMS, alarm.name, "", alarm.why, report.end_ms, 1)
