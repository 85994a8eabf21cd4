"""What needs somebody's attention, as far as it follows from a replica (docs/do/attention.md).

Open questions, jobs that asked for somebody (`emit` in a score), jobs that ended without a result
and were neither retried nor dismissed, kinds whose jobs wait and that nobody runs, documents with
conflicts, and the alarms of the newest bar. It is derived each time: what resolves a thing ends it.
Dead jobs of one kind that ended alike are one item. What a node's services have set aside, and a
coordinator that does not answer, is in the node's own table (`runtime/attention`).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from antiphon.core.authority.parties import party_behind, party_of_key
from antiphon.core.authority.scope import EVERY_KIND, EVERYTHING, Scope
from antiphon.core.families.jobs.columns import ESCALATED, ESCALATION
from antiphon.core.families.jobs.ops import DEGRADED, JOB, JobArtifact, JobComplete
from antiphon.core.families.jobs.state import Job, JobLane, job_key
from antiphon.core.record.branches import READS_ALL
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.attention.attention_table import Attention
from antiphon.runtime.caller.holdings import holdings_of
from antiphon.runtime.log.session import open_stored
from antiphon.runtime.replica.lane_lists import LaneList, Lists
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.sdk.dead_letters import DEAD_JOBS, DeadLetter, end_of, letters_of
from antiphon.sdk.jobs.unserved_kinds import WAITED_MS, unserved_kinds
from antiphon.sdk.memory.memory_space import DOCUMENTS_IN_CONFLICT
from antiphon.sdk.queries.page import digest_key
from antiphon.sdk.questions.namespace import OPEN_QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antiphon.core.authority.control import Control
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.ports import Record
    from antiphon.runtime.attention.dismissals import Dismissed
    from antiphon.runtime.replica.replica import Replica
    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.jobs.unserved_kinds import UnservedKind

QUESTIONS: Final = "questions"
ESCALATIONS: Final = "escalations"
JOBS: Final = "dead jobs"
WORKERS: Final = "workers"
CONFLICTS: Final = "conflicts"
ALARMS: Final = "alarms"
COORDINATOR: Final = "coordinator"
ESCALATION_WORDS: Final = b'"as":"escalation"'
MOST_DEAD: Final = 100
"""So many jobs without a result are looked at, and so many of those that asked for somebody."""
MOST: Final = 500
"""The same of questions, conflicts and what services have set aside."""
RESOLVED_BY: Final = {
    QUESTIONS: "antiphon answer {name}",
    ESCALATIONS: "antiphon show {name}",
    JOBS: "antiphon show {name}; antiphon retry {name}; antiphon dismiss {name}",
    WORKERS: "antiphon worker MODULE",
    CONFLICTS: "antiphon memory conflicts {first}",
    ALARMS: "antiphon report",
    COORDINATOR: "antiphon coordinator NODE names another",
}
"""What to type about an item; about what services have set aside: `doctor`."""
SHORT_ID: Final = 8
ALARM_OLD_MS: Final = 15 * 60_000
"""Nobody has made a report for so long: what it said may be over."""
_TIME_BYTES: Final = 6
_TIME_END: Final = 2 ** (8 * _TIME_BYTES) - 1
DEGRADED_MS: Final = 24 * 3_600_000
"""How long a result that is not what it should be needs somebody."""
ENDS: Final = {
    QUESTIONS: "an answer, or the end of its time",
    ESCALATIONS: "a result that is not degraded, a cancellation, or a day after its end",
    JOBS: "a retry, or antiphon dismiss",
    WORKERS: "a worker that runs it",
    CONFLICTS: "a write that resolves it",
    ALARMS: "a bar without it",
    COORDINATOR: "its answer, or another coordinator",
}
S = TypeVar("S")


def ends_with(one: Attention) -> str:
    """What ends it, in words."""
    return ENDS.get(one.service, "the service, which tries again")


OPEN_ESCALATIONS: Final = LaneList[Job](
    "jobs", JobLane, JOB, "needs", value=ESCALATION, is_newest_first=True
)
"""Jobs that asked for somebody and have not ended, the newest first."""
ESCALATED_JOBS: Final = LaneList[Job](
    "jobs", JobLane, JOB, "needs", value=ESCALATED, is_newest_first=True
)
"""Jobs that asked for somebody and have a result."""


class Needed(NamedTuple):
    """An item, and the party that it is counted for; empty for what is about the mesh itself."""

    party: str
    item: Attention

    @property
    def key(self) -> bytes:
        """Newest first; the rest only tells apart what is of the same moment."""
        one = self.item
        said = f"{one.service}\0{one.item}\0{one.by}\0{one.error}"
        since = _TIME_END - min(max(one.since_ms, 0), _TIME_END)
        return digest_key(said, since.to_bytes(_TIME_BYTES))


async def needed(
    connection: Connection,
    replica: Replica,
    scope: Scope = EVERYTHING,
    *,
    but: frozenset[str] = frozenset(),
) -> list[Needed]:
    """What needs attention now, as far as whoever asks may see it, without some sorts of it.

    Parties share each sort of which there is more than is looked at. What is about the mesh itself
    takes the right to read every kind.
    """
    replica.flush()
    session = connection.session
    lists = Lists(replica, session.control, scope)
    look = _Look(connection, replica, lists, await connection.dismissals.read())
    found = [one for sort, items in _OF_LANES.items() if sort not in but for one in items(look)]
    unserved = await unserved_kinds(connection, replica, scope=scope, waited_ms=WAITED_MS)
    found += [_without_worker(one) for one in unserved]
    if EVERY_KIND in scope.of(READS_ALL):
        aside = [*replica.attention.newest(limit=MOST), *replica.attention.reported()]
        found += [Needed(_party(session.control, one), one) for one in (*_alarms(look), *aside)]
    return found


def _without_worker(one: UnservedKind) -> Needed:
    item = Attention(
        WORKERS, one.kind, "", one.words, one.since_ms, one.jobs, count=one.jobs, command=one.hint
    )
    return Needed(one.party, item)


def _party(control: Control, one: Attention) -> str:
    return party_of_key(control, one.whose) if one.whose else ""


class _Look(NamedTuple):
    """What is looked at, and with whose eyes."""

    connection: Connection
    replica: Replica
    lists: Lists
    dismissed: Dismissed

    @property
    def now_ms(self) -> int:
        """What time it is."""
        return self.connection.session.wall.now_ms()

    def rows(self, of: LaneList[S], limit: int) -> Iterator[tuple[str, str, S]]:
        """Party, kind and state of the rows of a list, which parties share."""
        control = self.connection.session.control
        for row in self.lists.shared(of, limit=limit).rows:
            yield party_behind(control, row.whose), row.kind, row.state


def shown(one: Attention) -> str:
    """An item in words, with the whole ids of jobs; without whose it is, and why."""
    return "" if one.service == WORKERS else one.item  # the reason names the kind


def resolved_by(one: Attention) -> str:
    """What to type about an item."""
    if one.command:
        return one.command
    parts = one.item.split() or [""]
    words = RESOLVED_BY.get(one.service, "antiphon doctor")
    return words.format(first=parts[0], name=parts[-1][:SHORT_ID])


def _questions(look: _Look) -> Iterator[Needed]:
    for party, _, job in look.rows(OPEN_QUESTIONS, MOST):
        text = job.question.text if job.question is not None else ""
        item = f"{job.kind} {job.id}"
        yield Needed(party, Attention(QUESTIONS, item, job.scheduler, text, job.scheduled_ms, 1))


def _escalations(look: _Look) -> Iterator[Needed]:
    for party, _, job in look.rows(OPEN_ESCALATIONS, MOST_DEAD):
        yield from _escalation(look.replica, party, job)
    for party, _, job in look.rows(ESCALATED_JOBS, MOST_DEAD):
        ended = look.replica.record(job.ended_seq)
        op = _opened(look.replica, ended.record).op if ended is not None else None
        outputs = op.body.outputs if isinstance(op, JobComplete) else ()
        is_degraded = any(one.name == DEGRADED for one in outputs)
        if is_degraded and job.ended_ms >= look.now_ms - DEGRADED_MS:
            yield from _escalation(look.replica, party, job)


def _escalation(replica: Replica, party: str, job: Job) -> Iterator[Needed]:
    """What its runs have said: the newest of it, since the first."""
    said = [
        (stored.record, _opened(replica, stored.record).op)
        for stored in replica.lane_records(job_key(job.kind, job.id))
        if stored.verdict is Verdict.OK and ESCALATION_WORDS in stored.record.payload
    ]
    found = [(record, op) for record, op in said if isinstance(op, JobArtifact)]
    if found:
        first, (_, op) = found[0][0], found[-1]
        is_forgotten = replica.ask(ReplicaErasures).about(job) is not None
        item = Attention(
            ESCALATIONS,
            f"{job.kind} {job.id}",
            job.scheduler,
            "forgotten" if is_forgotten else f"{op.body.name}: {op.body.value or ''}",
            first.commit_ms,
            len(found),
            op.author,
        )
        yield Needed(party, item)


def _opened(replica: Replica, record: Record) -> OpenedRecord:
    return open_stored(replica.protocol, replica.mesh, record)


def _dead_jobs(look: _Look) -> Iterator[Needed]:
    """Those that were neither retried nor dismissed; of a kind, those that ended alike together."""
    control, name = look.connection.session.control, holdings_of(look.connection.session).name
    replica, dismissed = look.replica, look.dismissed

    def is_shown(job: Job) -> bool:
        return not dismissed.covers(job, lambda one: end_of(replica, one, name).why)

    part = look.lists.shared(DEAD_JOBS, limit=MOST_DEAD, only=is_shown)
    letters = letters_of(replica, [row.state for row in part.rows], name)
    groups: dict[tuple[str, str, str], list[DeadLetter]] = {}
    for row, letter in zip(part.rows, letters, strict=True):
        if letter.retried_as is None:
            key = (party_behind(control, row.whose), row.kind, letter.sort)
            groups.setdefault(key, []).append(letter)
    for (party, *_), group in groups.items():
        yield Needed(party, _dead(group, is_cut=part.is_cut))


def _dead(group: list[DeadLetter], *, is_cut: bool) -> Attention:
    """Jobs of one party and kind that ended alike, as one item."""
    newest = max(group, key=lambda one: one.job.ended_ms)
    job, count = newest.job, len(group)
    tries = max(job.attempts, 1)
    if count == 1:
        item = f"{job.kind} {job.id}"
        return Attention(JOBS, item, job.scheduler, newest.why, job.ended_ms, tries)
    least = "at least " if is_cut else ""
    said = f": {newest.note}" if newest.note else ""
    why = f"{least}{count:,} jobs {newest.sort}; the newest is {job.id[:SHORT_ID]}{said}"
    chosen = f"--kind {job.kind} --error {shlex.quote(newest.sort)}"
    return Attention(
        JOBS,
        job.kind,
        job.scheduler if len({one.job.scheduler for one in group}) == 1 else "",
        why,
        job.ended_ms,
        tries,
        count=count,
        error=newest.sort,
        command=f"antiphon jobs --failed --kind {job.kind}; antiphon retry {chosen};"
        f" antiphon dismiss {chosen}",
    )


def _conflicts(look: _Look) -> Iterator[Needed]:
    for party, space, document in look.rows(DOCUMENTS_IN_CONFLICT, MOST):
        count = len(document.siblings)
        why = f"{count} {'value waits' if count == 1 else 'values wait'} for a decision"
        item = f"{space} {document.key}"
        one = Attention(CONFLICTS, item, document.author, why, document.hlc[0], 1)
        yield Needed(party, one)


_OF_LANES: Final = {
    QUESTIONS: _questions,
    ESCALATIONS: _escalations,
    JOBS: _dead_jobs,
    CONFLICTS: _conflicts,
}


def _alarms(look: _Look) -> Iterator[Attention]:
    for report in look.replica.reports.newest(limit=1):
        if report.end_ms >= look.now_ms - ALARM_OLD_MS:
            for alarm in report.alarms:
                yield Attention(ALARMS, alarm.name, "", alarm.why, report.end_ms, 1)
