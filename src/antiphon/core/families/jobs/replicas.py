"""Replicas of a job, and which of them are a quorum (spec §9).

A job with `replicas` is never run itself. The coordinator submits that many *children*: the same
work with a nonce each, which follows from the parent's schedule and an index alone. Enough of them
that succeeded with equal outputs, for different *parties*, are a quorum, and the coordinator's
`job.resolve` names it. The reducer sees the parent's schedule as the first dep of a child, and the
lanes of the children that a resolve names.

Workers that one member delegated to count as that member (`core/authority/parties.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from blake3 import blake3
from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core import lane_archive
from antiphon.core.authority import parties
from antiphon.core.families.jobs import ops, planned
from antiphon.core.families.jobs.state import Job, JobLane, State, job_key
from antiphon.core.family import At, Needs
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE
from antiphon.core.manifest import job_id, with_nonce
from antiphon.core.record import codec
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.proof.output import Output
    from antiphon.core.record.op import Op

_RESULT: Final = ("result", "application/json")
_NOT_COMPARED: Final = "stderr"
REPLICAS_WITHIN_MS: Final = 30 * 24 * 3600 * 1000
"""How long after its beginning a job can get replicas, and wait for them."""


# --- the parent and its children ----------------------------------------------------------------


def most_children(replicas: int) -> int:
    """How many children a job may have: one more for each that told nothing new, up to twice."""
    return 2 * replicas


def until_ms(parent: ops.JobSchedule) -> int:
    """Until when a job may have replicas; it follows from its schedule alone.

    Neither the lanes of replicas nor the parent's are archived before. So no replica can come back
    that was archived, whatever rules come later.
    """
    return max(parent.hlc[0], parent.body.not_before or 0) + REPLICAS_WITHIN_MS


def deps_checked(op: Op) -> int:
    """A replica's first dep, its parent's schedule, counts as long as there may be replicas."""
    return int(isinstance(op, ops.JobSchedule) and op.body.replica is not None)


def is_contradictory(body: ops.ScheduleBody) -> bool:
    """Whether a schedule asks for a quorum that there cannot be."""
    if body.replicas is None:
        return body.quorum is not None
    is_between = body.quorum is not None and body.quorum <= body.replicas
    return not is_between or body.replica is not None or planned.leaves_no_room(body)


def child_body(parent: ops.ScheduleBody, parent_op: str, index: int) -> ops.ScheduleBody:
    """The schedule of one child; `parent_op` is the id of the op that submitted the parent."""
    nonce = blake3(codec.encode(["replica", parent_op, index])).hexdigest()
    content = replace(parent.manifest, ulid=UNSET)
    return replace(
        parent,
        manifest=with_nonce(content, nonce, "replica"),
        replicas=None,
        quorum=None,
        retry_of=None,
        derived=None,
        replica=ops.Replica(of=job_id(parent.manifest), index=index),
    )


def child_deps(parent: ops.JobSchedule, named: tuple[int, str]) -> tuple[tuple[int, str], ...]:
    """What a child names: its parent's schedule, and the plan that this follows from, if any."""
    return (named, *parent.deps[:1]) if parent.body.derived is not None else (named,)


def parent_of(op: ops.JobSchedule, at: At) -> ops.JobSchedule | Verdict:
    """The schedule of a child's parent, or the verdict why this is not its child.

    A parent that follows from a plan is given as the plan's author would have written it: it is
    that one's job.
    """
    if op.author != at.control.coordinator:
        return Verdict.NOT_COORDINATOR
    dep = at.reads.records.get(op.deps[0][0]) if op.deps else None
    parent, replica = dep.op if dep is not None else None, op.body.replica
    if not isinstance(parent, ops.JobSchedule) or replica is None:
        return Verdict.REPLICA
    if op.deps != child_deps(parent, op.deps[0]):
        return Verdict.REPLICA
    replicas = parent.body.replicas
    if replicas is None or replica.index >= most_children(replicas):
        return Verdict.REPLICA
    if is_contradictory(parent.body):
        return Verdict.REPLICA
    if op.body != child_body(parent.body, op.deps[0][1], replica.index):
        return Verdict.REPLICA
    if max(op.hlc[0], at.commit_ms, at.control.archive.before_ms) > until_ms(parent):
        return Verdict.TOO_LATE
    if parent.body.derived is None:
        return parent
    # The coordinator wrote it, so it counts only as far as the plan says so.
    plan = planned.plan_behind(parent, at)
    return Verdict.REPLICA if plan is None else planned.as_its_author(parent, plan)


# --- the quorum ---------------------------------------------------------------------------------


def compared(outputs: Iterable[Output]) -> tuple[Output, ...]:
    """The outputs that have to be equal: a function's result, or what a command wrote.

    What a command says on standard error is often different in each run, and not compared; nor
    are snapshots of model calls, which say when and by whom.
    """
    kept = tuple(one for one in outputs if one.name != _NOT_COMPARED and one.type != SNAPSHOT_TYPE)
    return tuple(one for one in kept if (one.name, one.type) == _RESULT) or kept


def fingerprint(outputs: Iterable[Output]) -> str:
    """A digest that is equal for outputs with the same names and contents."""
    parts = ((one.name, one.content) for one in compared(outputs))
    listed = sorted([name, each.hash, each.size, each.sha256 or ""] for name, each in parts)
    return digest(codec.encode(listed))


def party_of(control: Control, child: Job) -> str:
    """For whom a child was run; empty if that cannot be told."""
    return parties.party_of(control, child.claimer, child.auth, before=child.auth_seq)


def is_child(child: Job | None, parent: Job) -> bool:
    """Whether it is a replica of this job, by the schedule that counts."""
    return (
        child is not None
        and child.parent_seq == parent.scheduled_seq
        and child.replica_of == parent.id
        and child.kind == parent.kind
    )


def lanes_named(op: Op) -> tuple[LaneKey, ...]:
    """The lanes of the children that a resolve names."""
    if not isinstance(op, ops.JobResolve):
        return ()
    return tuple(job_key(op.body.kind, child) for child, _ in op.body.children)


def quorum_fault(parent: Job, op: ops.JobResolve, at: At) -> Verdict | Needs | None:
    """Why the children that a resolve names are not a quorum for its outputs; None if they are."""
    body = op.body
    keys = [job_key(body.kind, child) for child, _ in body.children]
    if len(set(keys)) != parent.quorum or len(keys) != parent.quorum or op.deps:
        return Verdict.QUORUM
    if any(key not in at.reads.lanes for key in keys):
        ends = (seq for _, seq in body.children)
        return Needs(lanes=tuple(zip(keys, ends, strict=True)))
    wanted, agreeing = fingerprint(body.outputs), set[str]()
    for key, (_, ended_seq) in zip(keys, body.children, strict=True):
        lane = lane_archive.behind(at.control, at.reads.lanes[key])
        child = lane.job if isinstance(lane, JobLane) else None
        if child is None or not is_child(child, parent) or child.ended_seq != ended_seq:
            return Verdict.QUORUM
        if child.state is not State.SUCCEEDED or child.fingerprint != wanted:
            return Verdict.QUORUM
        agreeing.add(party_of(at.control, child))
    return None if len(agreeing - {""}) == parent.quorum else Verdict.QUORUM


def agreed_on(op: ops.JobResolve, at: At) -> str:
    """The fingerprint of what a quorum agrees on: each child has it."""
    lane = at.reads.lanes[job_key(op.body.kind, op.body.children[0][0])]
    child = lane.job if isinstance(lane, JobLane) else None
    return "" if child is None else child.fingerprint
