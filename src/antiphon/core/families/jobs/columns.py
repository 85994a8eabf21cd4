"""The columns by which a replica can query jobs (spec §3)."""

from __future__ import annotations

from typing import Final, Literal
from zlib import crc32

from antiphon.core.authority.parties import whose
from antiphon.core.families.jobs import stored_content
from antiphon.core.families.jobs.derivation import Tick
from antiphon.core.families.jobs.state import HELD, OPEN, Job, State
from antiphon.core.family import Column, Evicted, Index, by_party

QUESTION: Final = "question"
ESCALATION: Final = "escalation"
ESCALATED: Final = "escalated"
"""It has a result, which may be one that is not what it should be."""
DEAD: Final = "dead"
"""Values of the column `needs`."""


def _due_ms(job: Job) -> int | None:
    """When anyone may expire it; None once it has ended."""
    if job.state in HELD:
        return job.deadline_ms
    return job.start_by_ms if job.state in OPEN else None


def _begins_ms(job: Job) -> int | None:
    """When any node may offer it for the first time; None unless it waits for that time alone."""
    return job.not_before_ms if job.waits_for_time_alone else None


def _whose(job: Job) -> str | None:
    """For whom it was submitted; None once it has ended and is in no list that parties share."""
    if job.is_terminal and _needs(job) is None and _snapshots(job) is None:
        return None
    return whose(job.call_auth, job.scheduler)


def _waiting_seq(job: Job) -> int | None:
    """Since which record it waits for the coordinator; None if it does not."""
    return job.waiting_seq if job.waits_for_coordinator else None


def _replicas_seq(job: Job) -> int | None:
    """Where it was submitted, if others are run in its place."""
    return job.scheduled_seq if job.replicas else None


def _offered_ms(job: Job) -> int | None:
    """When it was first offered, if its label may have a rate."""
    return job.offered_ms or None if job.concurrency else None


def _recall_ms(job: Job) -> int | None:
    """When it should be offered again; None unless pending. A question never is."""
    return job.recall_ms if job.state is State.PENDING and job.question is None else None


def _kept_ms(job: Job) -> int | None:
    """Since when its outputs are stored outside the log; None if there are none."""
    return job.ended_ms if job.stored else None


def _replaced(job: Job) -> int | None:
    """How many checkpoints newer ones replaced, before the job ends."""
    return None if job.is_terminal else len(job.replaced) or None


def _plan(job: Job) -> str | None:
    """The plan that it was derived from."""
    return job.plan or None


def _derived_ms(job: Job) -> int | None:
    """When the coordinator wrote it for somebody: from a plan, or as a replica."""
    return job.scheduled_ms if job.plan or job.replica_of else None


def _tick_ms(job: Job) -> int | None:
    """The tick that it was derived from."""
    return job.derived.tick_ms if isinstance(job.derived, Tick) else None


def _ended_seq(job: Job) -> int | None:
    """Where it ended."""
    return job.ended_seq or None


def _snapshots(job: Job) -> int | None:
    """How many model calls its runs have stored."""
    return job.artifacts.snapshots or None if job.artifacts is not None else None


def _needs(job: Job) -> str | None:
    """Why it is in a list of what needs somebody; of replicas, the parent is."""
    if job.replica_of:
        return None
    if job.question is not None:
        return None if job.is_terminal else QUESTION  # nobody's answer is an answer to who asked
    if job.is_dead_letter:
        return DEAD
    if job.artifacts is None or not job.artifacts.escalations or job.outcome == "cancelled":
        return None
    return ESCALATED if job.is_terminal else ESCALATION


def node_number(did: str) -> int:
    """The number under which the jobs of a node are found; another node may have the same.

    A key is 56 characters long, and an index has one for each job.
    """
    return crc32(did.encode())


def _worker(job: Job) -> int | None:
    """Who holds it, or ran it last."""
    return node_number(job.claimer) if job.claimer else None


COLUMNS: Final = (
    Column("state", "text", lambda job: job.state.value),
    Column("priority", "text", lambda job: job.priority),
    Column("alias", "text", lambda job: job.alias or None, is_fixed=True),
    Column("submitter", "integer", lambda job: node_number(job.scheduler), is_fixed=True),
    Column("worker", "integer", _worker),
    Column("scheduled_ms", "integer", lambda job: job.scheduled_ms, is_fixed=True),
    Column("due_ms", "integer", _due_ms),
    Column("begins_ms", "integer", _begins_ms),
    Column("whose", "text", _whose),
    Column("waiting_seq", "integer", _waiting_seq),
    Column("replicas_seq", "integer", _replicas_seq, is_fixed=True),
    Column("label", "text", lambda job: job.concurrency or None, is_fixed=True),
    Column("offered_ms", "integer", _offered_ms),
    Column("recall_ms", "integer", _recall_ms),
    Column("kept_ms", "integer", _kept_ms),
    Column("replaced", "integer", _replaced),
    Column("plan", "text", _plan, is_fixed=True),
    Column("derived_ms", "integer", _derived_ms, is_fixed=True),
    Column("tick_ms", "integer", _tick_ms, is_fixed=True),
    Column("ended_seq", "integer", _ended_seq),
    Column("needs", "text", _needs),
    Column("snapshots", "integer", _snapshots),
)
INDEXES: Final = (
    Index(("first_seq",), of="state"),
    Index(("state", "kind", "first_seq"), of="state"),
    Index(("submitter", "first_seq"), of="submitter"),
    Index(("worker", "first_seq"), of="worker"),
    Index(("alias",), of="alias"),
    Index(("due_ms",), of="due_ms"),
    Index(("begins_ms",), of="begins_ms"),
    Index(("whose", "due_ms"), of="due_ms"),
    Index(("whose", "begins_ms"), of="begins_ms"),
    Index(("whose", "recall_ms"), of="recall_ms"),
    Index(("waiting_seq",), of="waiting_seq"),
    Index(("replicas_seq",), of="replicas_seq"),
    Index(("label", "state"), of="label"),
    Index(("label", "first_seq"), of="label"),
    Index(("label", "offered_ms"), of="offered_ms"),
    Index(("recall_ms",), of="recall_ms"),
    Index(("kept_ms",), of="kept_ms"),
    Index(("derived_ms",), of="derived_ms"),
    Index(("replaced",), of="replaced"),
    Index(("plan", "tick_ms"), of="plan"),
    Index(("plan", "first_seq"), of="plan"),
    Index(("ended_seq",), of="ended_seq"),
    Index(("needs", "first_seq", "kind"), of="needs"),
    *by_party("needs", by_value=True),
    *by_party("snapshots"),
)


def blobs(job: Job) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests that the job reads or stores, and those that were evicted."""
    gone = [Evicted(one, "checkpoint") for one in job.forgotten]
    gone += [Evicted(one, _named_as(job, one)) for one in job.evicted]
    saved = () if job.is_terminal else stored_content.saved(job)
    return tuple(dict.fromkeys((*job.reads, *job.stored, *saved))), tuple(gone)


def follows(job: Job) -> tuple[tuple[str, str], ...]:
    """The jobs that it waits or waited for."""
    return (*job.after, *job.children) if job.children else job.after


def _named_as(job: Job, digest: str) -> Literal["output", "arguments", "checkpoint"]:
    if digest == job.arguments:
        return "arguments"
    return "checkpoint" if digest in job.replaced else "output"
