"""What needs somebody's attention, as far as it follows from a replica (docs/do/attention.md).

Open questions, jobs that ended without a result and were not retried, documents with conflicts, and
the alarms of the newest bar. It is derived each time: what resolves a thing ends it. What a node's
services have set aside, and a coordinator that does not answer, is in the node's own table
(`runtime/attention`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.families.jobs.state import State
from antiphon.core.policy.retry import is_dead_letter
from antiphon.runtime.attention.attention_table import Attention
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.sdk.dead_letters import letters_of
from antiphon.sdk.memory.memory_space import ReplicaDocuments
from antiphon.sdk.questions.namespace import ReplicaQuestions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection

QUESTIONS: Final = "questions"
JOBS: Final = "dead jobs"
CONFLICTS: Final = "conflicts"
ALARMS: Final = "alarms"
MOST_DEAD: Final = 100
"""Of the newest jobs without a result, those that are looked at."""
MOST: Final = 500
ALARM_OLD_MS: Final = 15 * 60_000
"""Nobody has made a report for so long: what it said may be over."""


def derived(connection: Connection, replica: Replica) -> list[Attention]:
    """What needs attention now."""
    replica.flush()
    return [
        *_questions(replica),
        *_dead_jobs(connection, replica),
        *_conflicts(replica),
        *_alarms(replica, connection.session.wall.now_ms()),
    ]


def _questions(replica: Replica) -> Iterator[Attention]:
    for job in replica.ask(ReplicaQuestions).open(limit=MOST):
        text = job.question.text if job.question is not None else ""
        item = f"{job.kind} {job.id}"
        yield Attention(QUESTIONS, item, job.scheduler, text, job.scheduled_ms, 1)


def _dead_jobs(connection: Connection, replica: Replica) -> Iterator[Attention]:
    newest = replica.ask(ReplicaJobs).jobs(states=(State.FAILED, State.ABORTED), limit=MOST_DEAD)
    # A question that nobody answered is an answer to whoever asked; of replicas, the parent counts.
    dead = [
        job for job in newest if is_dead_letter(job) and job.question is None and not job.replica_of
    ]
    known: Any = SimpleNamespace(connection=connection)
    for letter in letters_of(known, replica, dead):
        if letter.retried_as is None:
            job = letter.job
            why = f"{job.outcome}: {letter.note}" if letter.note else job.outcome
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
