"""Verdicts on a job's lane (spec §5): the one function that decides.

`apply(control, lane, entry)` is a pure function of a small read-set: the control state at the
entry's place, the lane so far, and what the log holds at the sequences that the op names. A full
node, a node that sees a few kinds and a light worker that read one lane call the same function
with the same arguments, so they reach the same verdict; its cost does not depend on the mesh.

The order of the checks is part of the protocol, since it decides which reason is recorded:
bytes, time, predecessor, authority, deps, existence, order, transition. `to_look_up` says what the
reader has to fetch for the deps, and asks for nothing until the checks before them have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from antiphon.core import authority, ops, subjects
from antiphon.core import deps as named_records
from antiphon.core.control import Control, time_fault
from antiphon.core.deps import NO_DEPS, Dep
from antiphon.core.jobs import HELD, Job
from antiphon.core.reasons import Reason
from antiphon.core.transitions import TRANSITIONS, Moment, scheduled, without_authority

if TYPE_CHECKING:
    from antiphon.core.records import Entry

_WAIT, _CALL, _JOB = 0, 1, 4
_AT_KIND: Final = 3
_CALL_SLOTS: Final = {str(urgency): _CALL + urgency for urgency in subjects.CLASSES}


Tails = tuple[int, int, int, int, int]


class Lane(Struct, frozen=True, gc=False):
    """A job's lane up to some record: its job, and the last sequence on each of its subjects."""

    tails: Tails = (0, 0, 0, 0, 0)
    """Last sequences on wait, call.0, call.1, call.2 and job, in that order."""
    job: Job | None = None

    @property
    def call_tail(self) -> int:
        """What an offer names as `prev`, given the job's class."""
        return self.tails[_CALL + self.job.urgency] if self.job else 0

    @property
    def job_tail(self) -> int:
        """What the next op on the job's own subject names as `prev`."""
        return self.tails[_JOB]


EMPTY: Final = Lane()


class Outcome(Struct, frozen=True, gc=False):
    """What a record did: its verdict and the lane after it."""

    verdict: Reason
    lane: Lane

    @property
    def changed(self) -> bool:
        """Whether the record took effect."""
        return self.verdict is Reason.OK


def slot_of(subject: str) -> int | None:
    """Which of a lane's five subjects this is; None for a subject that belongs to no lane.

    Anyone may publish on `call.9.…` or `else.…`, and a lane's wildcard filters read it.
    """
    tokens = subject.split(".", 4)
    where = tokens[2] if len(tokens) > _AT_KIND else ""
    if where == "job":
        return _JOB
    if where == "call":
        return _CALL_SLOTS.get(tokens[_AT_KIND])
    return _WAIT if where == "wait" else None


def to_look_up(control: Control | None, lane: Lane, entry: Entry) -> tuple[int, ...]:
    """The sequences at which a verdict on this record needs to know what the log holds."""
    slot = slot_of(entry.subject)
    if control is None or slot is None or entry.op is None or not entry.op.deps:
        return ()
    job = effective(control, lane.job, entry.seq)
    if isinstance(_checked(control, job, lane.tails[slot], entry), Reason):
        return ()
    return named_records.to_look_up(entry, control.op_ids)


def apply(
    control: Control | None, lane: Lane, entry: Entry, deps: Mapping[int, Dep] = NO_DEPS
) -> Outcome:
    """Judge one record of a lane. `deps` is what the log holds at the sequences `to_look_up`."""
    slot = slot_of(entry.subject)
    if slot is None:
        return Outcome(entry.fault or Reason.SUBJECT, lane)
    tails = lane.tails
    moved = cast("Tails", (*tails[:slot], entry.seq, *tails[slot + 1 :]))
    if control is None:
        return Outcome(entry.fault or Reason.GENESIS, Lane(moved, None))
    job = effective(control, lane.job, entry.seq)
    verdict = _judge(control, job, tails[slot], entry, deps)
    if isinstance(verdict, Job):
        return Outcome(Reason.OK, Lane(moved, verdict))
    return Outcome(verdict, Lane(moved, job))


def effective(control: Control | None, job: Job | None, seq: int) -> Job | None:
    """The job as it stands at a sequence: a tenure ends where its authority did."""
    if job is None or control is None or job.state not in HELD:
        return job
    if control.rules.authority == "open" and not control.standings:
        return job
    return without_authority(job) if authority.has_ended(control, job, seq) else job


def _checked(control: Control, job: Job | None, before: int, entry: Entry) -> ops.JobOp | Reason:
    """The op, if nothing at hand speaks against it: bytes, time, predecessor, authority."""
    if entry.fault is not None:
        return entry.fault
    op = entry.op
    if op is None or not isinstance(op, ops.JOB_TYPES):
        return Reason.GENESIS
    fault = time_fault(control, entry, op.hlc)
    if fault is not None:
        return fault
    if op.prev != before:
        return Reason.PREV
    return authority.fault(control, op, entry, job) or op


def _judge(
    control: Control,
    job: Job | None,
    before: int,
    entry: Entry,
    deps: Mapping[int, Dep],
) -> Job | Reason:
    op = _checked(control, job, before, entry)
    if isinstance(op, Reason):
        return op
    if op.deps and not named_records.are_present(entry, control.op_ids, deps):
        return Reason.MISSING_DEP
    at = Moment(entry.seq, entry.commit_ms, control)
    if job is None:
        if not isinstance(op, ops.JobSchedule):
            return Reason.NO_JOB
        return scheduled(op, entry.subject[-64:], at)
    if op.hlc <= job.hlc:
        if isinstance(op, ops.JobSchedule):
            return Reason.EXISTS
        same = op.hlc == job.hlc and op.author == job.hlc_author
        return Reason.EQUIVOCATION if same else Reason.STALE
    cell = TRANSITIONS[type(op)][job.state]
    return cell if isinstance(cell, Reason) else cell(job, op, at)
