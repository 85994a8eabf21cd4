"""What a replica says about a job with replicas and its children."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.derivations import quorum_derivation
from antiphon.core.derivations.derived_use import WINDOW_MS, DerivedUse, party_of_derived
from antiphon.core.derivations.quorum_derivation import NO_QUORUM, NextStep
from antiphon.core.families.jobs.ops import (
    JobCancel,
    JobComplete,
    JobSchedule,
    ResolveBody,
    ScheduleBody,
)
from antiphon.core.families.jobs.replicas import (
    child_body,
    child_deps,
    compared,
    most_children,
    party_of,
)
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.manifest import job_id
from antiphon.runtime.replica.replica_jobs import job_lane
from antiphon.runtime.replica.replica_waits import ReplicaWaits

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.op import Op
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.replica.replica import Replica

MOST_COUNTED = 100_000
CANNOT_SUBMIT = f"{NO_QUORUM}its replicas cannot be submitted: "


class Parent(Struct, frozen=True):
    """A job with replicas, and its schedule."""

    job: Job
    op: JobSchedule
    op_id: str

    @property
    def named(self) -> tuple[tuple[int, str], ...]:
        """What a child names as its deps."""
        return child_deps(self.op, (self.job.scheduled_seq, self.op_id))

    def child(self, index: int) -> ScheduleBody:
        """What a child is submitted with."""
        return child_body(self.op.body, self.op_id, index)


class QuorumChildren:
    """Answers what `quorum_derivation` asks, from a replica."""

    def __init__(self, replica: Replica, session: Session) -> None:
        """The session opens records; nothing is read through it."""
        self.replica = replica
        self.session = session

    def parent(self, kind: str, job_id: str) -> Parent | None:
        """A job with replicas; None if there is no such job."""
        job = job_lane(self.replica, kind, job_id).job
        if job is None or not job.replicas:
            return None
        opened = self._opened(job.scheduled_seq)
        if opened is None or not isinstance(opened.op, JobSchedule):
            return None
        return Parent(job, opened.op, opened.op_id)

    def children(self, parent: Parent) -> list[Job]:
        """What is on the log under the ids of its children, by index, up to the first gap."""
        found: list[Job] = []
        for index in range(most_children(parent.job.replicas)):
            child = job_id(parent.child(index).manifest)
            job = job_lane(self.replica, parent.job.kind, child).job
            if job is None:
                break
            found.append(job)
        return found

    def counts(self, job: Job) -> bool:
        """Whether a replica counts for its party's rate: not where its plan's job does."""
        parent = job_lane(self.replica, job.kind, job.replica_of).job
        return parent is not None and not parent.plan

    def lately(self, control: Control, now_ms: int) -> DerivedUse:
        """How many replicas were submitted for each party within the last minute."""
        use = DerivedUse()
        self.replica.flush()
        found = self.replica.ask(ReplicaWaits).replicas_since(
            now_ms - WINDOW_MS, limit=MOST_COUNTED
        )
        for job in filter(self.counts, found):
            use.note(party_of_derived(control, job), job.scheduled_ms, 1)
        return use

    def derive(self, control: Control, parent: Parent) -> NextStep:
        """What the log says should be written next."""
        children, party = self.children(parent), partial(party_of, control)
        return quorum_derivation.derive(parent.job, children, party)

    def resolve_body(self, parent: Parent, quorum: tuple[Job, ...]) -> ResolveBody | None:
        """The resolve that names these children, with the outputs that they agree on."""
        opened = self._opened(quorum[0].ended_seq)
        if opened is None or not isinstance(opened.op, JobComplete):
            return None
        return ResolveBody(
            kind=parent.job.kind,
            job=parent.job.id,
            children=tuple((child.id, child.ended_seq) for child in quorum),
            outputs=compared(opened.op.body.outputs),
        )

    def difference(self, control: Control, job: Job, op: Op) -> str:
        """How what was written about a job or its replica differs from the log; often empty."""
        match op:
            case JobSchedule() if job.replica_of:
                parent = self.parent(job.kind, job.replica_of)
                if parent is None or parent.job.is_terminal:
                    return ""
                if job.replica_index < parent.job.replicas or self._is_wanted(control, parent, job):
                    return ""
                return f"replica {job.replica_index + 1} was submitted, and none more is needed"
            case JobCancel() if job.replicas and op.body.reason.startswith(NO_QUORUM):
                parent = self.parent(job.kind, job.id)
                if parent is None or op.body.reason.startswith(CANNOT_SUBMIT):
                    return ""
                open_again = replace(parent, job=replace(job, state=State.WAITING))
                if self.derive(control, open_again).give_up:
                    return ""
                return "it was cancelled, and its replicas could still agree"
            case _:
                return ""

    def _is_wanted(self, control: Control, parent: Parent, job: Job) -> bool:
        """Whether a replica follows from those before it; several may be submitted together."""
        before, party = self.children(parent)[: job.replica_index], partial(party_of, control)
        while before:
            if job.replica_index in quorum_derivation.derive(parent.job, before, party).submit:
                return True
            if before.pop().is_terminal:
                return False  # it was not submitted together with that one
        return False

    def _opened(self, seq: int) -> OpenedRecord | None:
        stored = self.replica.record(seq)
        if stored is None:
            self.replica.flush()
            stored = self.replica.record(seq)
        return None if stored is None else self.session.open(stored.record)
