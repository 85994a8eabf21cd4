"""The state machine of a job, as a table (spec §7.2).

    waiting ─offer→ pending ─claim→ claimed ─start→ running ─complete→ succeeded | failed
                       ▲               │               │
                       └──── yield / expire (attempts left) ────┘    none left → failed(exhausted)
    waiting | pending | claimed | running ─cancel→ aborted
    waiting | pending past start_by ─expire→ aborted(expired)
    claimed | running ─yield after other jobs→ waiting
    waiting with replicas ─resolve→ succeeded

An artifact changes no state, and an eviction does not either: the one says what a run has stored,
the other that an output of an ended job, or a checkpoint that a newer one replaced, is kept no
longer.

`TRANSITIONS` maps (op type, state) to the rule for that cell: a function from job, op and place to
the next job or a verdict. A cell that is a bare verdict gives it to every op. Every cell is
filled; nothing is allowed by omission.

`antiphon.core.reducer` has checked what all cells share: time, order and authority. A fence is the
packed timestamp of the claim that began the tenure. After the job has ended it is still the last
tenure's, so a late op with an older one gets the verdict `fence`, not `finished`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.authority.chain_check import (
    has_lost_authority,
    stands_for,
)
from antiphon.core.clock.hlc import pack, unpack
from antiphon.core.families.jobs import (
    audited_calls,
    completion_proof,
    ops,
    questions,
    replicas,
    run_artifacts,
    scheduling,
    stored_content,
)
from antiphon.core.families.jobs.state import HELD, TERMINAL, Job, State
from antiphon.core.family import At, Moved, Needs
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op

Cell = Callable[[Job, Any, At], Job | Verdict | Needs]
"""Each cell takes the one op type of its row; the table's key guarantees it."""


# --- the state before an op ---------------------------------------------------------------------


def standing(control: Control, job: Job | None, seq: int) -> Job | None:
    """The job before a sequence: a tenure ends where its authority ended."""
    if job is None or job.state not in HELD:
        return job
    lost = has_lost_authority(control, job.claimer, job.auth, since=job.auth_seq, seq=seq)
    return without_authority(job) if lost else job


def last(_: Control, job: Job | None, op: Op) -> tuple[tuple[int, int], str] | None:
    """The newest op on the job; None for a second submit, which gets `exists` however old it is."""
    if job is None or type(op) is ops.JobSchedule:
        return None
    return job.hlc, job.hlc_author


def step(job: Job | None, op: Op, at: At) -> Job | Moved | Verdict | Needs:
    """The job after an op, or the verdict if nothing changes."""
    if job is None:
        return scheduling.scheduled(op, at) if isinstance(op, ops.JobSchedule) else Verdict.NO_JOB
    cell = TRANSITIONS[type(op)][job.state]
    return cell if isinstance(cell, Verdict) else cell(job, op, at)


def is_asked_again(op: Op) -> bool:
    """Whether the job that an op submits may be submitted again."""
    return type(op) is ops.JobSchedule and manifest.is_asked_again(op.body.manifest)


def unfinished(job: Job) -> str:
    """Why a job cannot be exported as a bundle yet; empty if it can."""
    return "" if job.is_terminal else "the job has not ended"


# --- the cells ----------------------------------------------------------------------------------


def _offer_first(job: Job, op: ops.JobOffer, at: At) -> Job | Verdict:
    if job.replicas:
        return Verdict.BY_QUORUM
    # Whether a job's time has come, any node can tell; only the coordinator counts (spec §7.3).
    if not job.waits_for_time_alone and op.author != at.control.coordinator:
        return Verdict.NOT_COORDINATOR
    if op.body.priority != job.priority:
        return Verdict.PRIORITY
    if op.hlc[0] < job.not_before_ms or at.commit_ms < job.not_before_ms:
        return Verdict.EARLY
    results = op.body.results
    if len(results) != (len(job.children) if job.continuations else job.results_read):
        return Verdict.RESULTS
    if not all(one.has_value or (job.continuations and one.outcome) for one in results):
        return Verdict.RESULTS
    reads = dict.fromkeys((*job.reads, *(one.hash for one in results if one.hash is not None)))
    return replace(
        _called(job, at),
        state=State.PENDING,
        hlc=op.hlc,
        hlc_author=op.author,
        offered_seq=at.seq,
        offered_ms=job.offered_ms or at.commit_ms,
        results=job.results if job.continuations else results,
        child_results=results if job.continuations else (),
        reads=tuple(reads),
    )


def _offer_again(job: Job, op: ops.JobOffer, at: At) -> Job | Verdict:
    if job.question is not None:
        return Verdict.QUESTION
    # An announcement does not change the job's timestamp: a claim that is already on its way
    # must not become stale because the job was announced again.
    if op.body.priority != job.priority:
        return Verdict.PRIORITY
    return Verdict.RESULTS if op.body.results else _called(job, at)


def _called(job: Job, at: At) -> Job:
    rules = at.control.rules
    return replace(
        job, calls=job.calls + 1, called_ms=at.commit_ms, recall_after_ms=rules.offer_after_ms
    )


def _claim_open(job: Job, op: ops.JobClaim, at: At) -> Job | Verdict:
    body, wall_ms = op.body, op.hlc[0]
    if body.fence is not None:
        return Verdict.FENCE
    if (body.checkpoint, body.beats_left, body.progress) != (None, None, None):
        return Verdict.CHECKPOINT
    if wall_ms < job.retry_after_ms:
        return Verdict.NOT_YET
    if wall_ms > job.start_by_ms:
        return Verdict.TOO_LATE
    if job.cooling and any(who == op.author and wall_ms < until for who, until in job.cooling):
        return Verdict.COOLDOWN
    if at.control.pause_of(job.kind, job.concurrency, job.plan_name):
        return Verdict.PAUSED
    fault = questions.claim_fault(job, op, at)
    if fault is not None:
        return fault
    route = at.control.route_for(job.kind)
    if route is not None and not stands_for(at.control, op, at.seq, route):
        return Verdict.NOT_ROUTED
    if not at.control.rules.lease_min_ms <= body.lease_ms <= job.lease_ms_max:
        return Verdict.LEASE
    return replace(
        job,
        state=State.RUNNING if body.begin else State.CLAIMED,
        hlc=op.hlc,
        hlc_author=op.author,
        claimer=op.author,
        fence=pack(op.hlc),
        auth=op.auth,
        auth_seq=at.seq,
        is_audited=audited_calls.is_in_force(at.control, op.auth, before=at.seq),
        deadline_ms=wall_ms + body.lease_ms,
        tenure_lease_ms=body.lease_ms,
    )


def _claim_held(job: Job, op: ops.JobClaim, at: At) -> Job | Verdict:
    body, wall_ms = op.body, op.hlc[0]
    if op.author != job.claimer:
        return Verdict.HELD if body.fence is None else Verdict.FENCE
    if body.fence is not None and body.fence != job.fence:
        return Verdict.FENCE
    if body.answers != (job.question is not None):
        return Verdict.QUESTION
    # The lease must still run by both clocks. Otherwise a holder could backdate its renewal
    # into a lease that everyone else has seen end.
    if wall_ms > job.deadline_ms or at.commit_ms > job.deadline_ms:
        return Verdict.LEASE_OVER
    if job.tenure_ms_max and wall_ms > unpack(job.fence)[0] + job.tenure_ms_max:
        return Verdict.LEASE_OVER
    if not at.control.rules.lease_min_ms <= body.lease_ms <= job.lease_ms_max:
        return Verdict.LEASE
    kept = stored_content.with_checkpoint(job, body.checkpoint)
    if isinstance(kept, Verdict):
        return kept
    return replace(
        kept,
        state=State.RUNNING if body.begin else job.state,
        hlc=op.hlc,
        hlc_author=op.author,
        auth=op.auth,
        auth_seq=at.seq,
        deadline_ms=max(job.deadline_ms, wall_ms + body.lease_ms),
        tenure_lease_ms=body.lease_ms,
    )


_ByHolder = ops.JobStart | ops.JobArtifact | ops.JobComplete | ops.JobYield


def _holder_fault(job: Job, op: _ByHolder) -> Verdict | None:
    if op.body.fence != job.fence:
        return Verdict.FENCE
    if op.author != job.claimer:
        return Verdict.NOT_CLAIMER
    is_question = job.question is not None
    return Verdict.QUESTION if is_question and type(op) is not ops.JobComplete else None


def _start_held(job: Job, op: ops.JobStart, _: At) -> Job | Verdict:
    return _holder_fault(job, op) or replace(
        job, state=State.RUNNING, hlc=op.hlc, hlc_author=op.author
    )


def _start_again(job: Job, op: ops.JobStart, _: At) -> Job | Verdict:
    return _holder_fault(job, op) or Verdict.ALREADY


def _artifact(job: Job, op: ops.JobArtifact, _: At) -> Job | Verdict:
    return _holder_fault(job, op) or run_artifacts.with_artifact(job, op)


def _complete(job: Job, op: ops.JobComplete, at: At) -> Job | Verdict:
    body = op.body
    fault = (
        _holder_fault(job, op)
        or questions.answer_fault(job, body)
        or completion_proof.fault(job, body, op.author, at)
    )
    if fault is not None:
        return fault
    state = State.SUCCEEDED if body.status == "succeeded" else State.FAILED
    if job.replica_of and state is State.SUCCEEDED:
        job = replace(job, fingerprint=replicas.fingerprint(body.outputs))
    job = job.with_cost(op.author, completion_proof.cost_in_proof(body))
    return _ended(
        replace(job, stored=stored_content.stored(body.outputs)), op, at, state, body.status
    )


def _resolve(job: Job, op: ops.JobResolve, at: At) -> Job | Verdict | Needs:
    if op.author != at.control.coordinator:
        return Verdict.NOT_COORDINATOR
    if not job.replicas:
        return Verdict.QUORUM
    fault = replicas.quorum_fault(job, op, at)
    if fault is not None:
        return fault
    stored = stored_content.stored(op.body.outputs)
    job = replace(job, stored=stored, fingerprint=replicas.agreed_on(op, at))
    return _ended(job, op, at, State.SUCCEEDED, "succeeded")


def _yield(job: Job, op: ops.JobYield, at: At) -> Job | Verdict:
    fault = _holder_fault(job, op)
    if fault is not None:
        return fault
    body, rules = op.body, at.control.rules
    if (body.reason == "after") != bool(body.after) or _names_twice(body.after):
        return Verdict.AFTER
    job = job.with_cost(op.author, body.cost)
    if body.after:
        return _yield_after(job, op, at)
    kept = stored_content.with_checkpoint(job, body.checkpoint)
    if isinstance(kept, Verdict):
        return kept
    kept = _counted(kept, body.reason)
    if (
        kept.attempts >= job.attempts_max
        or kept.yields > rules.yields_max
        or kept.postponed > rules.postponed_max
    ):
        return _ended(kept, op, at, State.FAILED, "exhausted")
    wall_ms = op.hlc[0]
    retry_after_ms = wall_ms + min(body.retry_after_ms, rules.retry_after_max_ms)
    return replace(
        kept,
        state=State.PENDING,
        hlc=op.hlc,
        hlc_author=op.author,
        claimer="",
        fence="",
        deadline_ms=0,
        retry_after_ms=retry_after_ms,
        start_by_ms=max(job.start_by_ms, retry_after_ms + job.start_window_ms),
    )


def _names_twice(jobs: tuple[ops.JobKey, ...]) -> bool:
    """Each of them is repeated in the offer: one job must not fill it."""
    return len(set(jobs)) < len(jobs)


def _counted(job: Job, reason: str) -> Job:
    """The job with a yield for this reason counted where it belongs."""
    if reason in _ATTEMPTS:
        return replace(job, attempts=job.attempts + 1)
    if reason == "later":
        return replace(job, postponed=job.postponed + 1)
    return replace(job, yields=job.yields + 1)


_ATTEMPTS: Final = frozenset({"error", "overrun"})


def _yield_after(job: Job, op: ops.JobYield, at: At) -> Job | Verdict:
    """The tenure ends without an attempt; the job waits until the other jobs have ended."""
    kept = stored_content.with_checkpoint(job, op.body.checkpoint)
    if isinstance(kept, Verdict):
        return kept
    job = kept
    continuations = job.continuations + 1
    if continuations > at.control.rules.continuations_max:
        return _ended(job, op, at, State.FAILED, "exhausted")
    return replace(
        job,
        state=State.WAITING,
        hlc=op.hlc,
        hlc_author=op.author,
        claimer="",
        fence="",
        deadline_ms=0,
        expired_fence=job.fence,
        waiting_seq=at.seq,
        continuations=continuations,
        children=op.body.after,
        child_results=(),
        start_by_ms=max(job.start_by_ms, _waits_until(op, at) + job.start_window_ms),
    )


def _waits_until(op: ops.JobYield, at: At) -> int:
    """When a job that waits for others may begin again at the latest; every wait ends."""
    wall_ms = op.hlc[0]
    return max(wall_ms, min(op.body.until or 0, wall_ms + at.control.rules.horizon_ms))


def _expire_held(job: Job, op: ops.JobExpire, at: At) -> Job | Verdict:
    wall_ms = op.hlc[0]
    if op.body.fence != job.fence:
        return _repeated_expiry(job, op) or Verdict.FENCE
    # Neither the author's clock alone nor the engine's alone is evidence (spec §7.2).
    if wall_ms <= job.deadline_ms or at.commit_ms <= job.deadline_ms:
        return Verdict.EARLY
    is_question = job.question is not None
    attempts = job.attempts + (not is_question)
    if attempts >= job.attempts_max:
        return _ended(
            replace(job, attempts=attempts, expired_fence=job.fence),
            op,
            at,
            State.FAILED,
            "exhausted",
        )
    cooling = tuple(entry for entry in job.cooling if entry[1] > wall_ms)
    # Counted from there, the window to start is also open to a worker that is the only one.
    cooled_ms = wall_ms + job.tenure_lease_ms
    return replace(
        job,
        state=State.PENDING,
        hlc=op.hlc,
        hlc_author=op.author,
        attempts=attempts,
        claimer="",
        fence="",
        deadline_ms=0,
        expired_fence=job.fence,
        cooling=(*cooling, (job.claimer, cooled_ms)),
        # A question is open until its time, whoever took it meanwhile.
        start_by_ms=job.start_by_ms
        if is_question
        else max(job.start_by_ms, cooled_ms + job.start_window_ms),
    )


def _repeated_expiry(job: Job, op: ops.JobExpire) -> Verdict | None:
    fence = op.body.fence
    repeats = fence == job.expired_fence if fence is not None else job.outcome == "expired"
    return Verdict.ALREADY if repeats else None


def _expire_open(job: Job, op: ops.JobExpire, at: At) -> Job | Verdict:
    if op.body.fence is not None:
        return _repeated_expiry(job, op) or Verdict.NOT_CLAIMED
    if op.hlc[0] <= job.start_by_ms or at.commit_ms <= job.start_by_ms:
        return Verdict.EARLY
    return _ended(job, op, at, State.ABORTED, "expired")


def _expire_late(job: Job, op: ops.JobExpire, _: At) -> Job | Verdict:
    return _repeated_expiry(job, op) or Verdict.FINISHED


def without_authority(job: Job) -> Job:
    """A held job whose holder's authority ended: pending again, and not counted as an attempt."""
    return replace(
        job,
        state=State.PENDING,
        claimer="",
        fence="",
        auth=(),
        deadline_ms=0,
        expired_fence=job.fence,
        # The window to start begins again where the lease would have ended at the latest.
        start_by_ms=job.start_by_ms
        if job.question is not None
        else max(job.start_by_ms, job.deadline_ms + job.start_window_ms),
    )


def _cancel(job: Job, op: ops.JobCancel, at: At) -> Job | Verdict:
    return _ended(job, op, at, State.ABORTED, "cancelled")


def _fenced_idle(job: Job, _: Op, __: At) -> Job | Verdict:
    # An op with a fence on a job that nobody holds: its author's tenure has ended.
    held_before = job.expired_fence or job.yields or job.attempts or job.postponed
    return Verdict.FENCE if held_before else Verdict.NOT_CLAIMED


def _fenced_late(job: Job, op: _ByHolder, _: At) -> Job | Verdict:
    return Verdict.FENCE if op.body.fence != job.fence else Verdict.FINISHED


def _ended(job: Job, op: ops.JobOp, at: At, state: State, outcome: str) -> Job:
    return replace(
        job,
        state=state,
        hlc=op.hlc,
        hlc_author=op.author,
        deadline_ms=0,
        outcome=outcome,
        ended_seq=at.seq,
        ended_ms=at.commit_ms,
        reads=(),
        results=(),
        child_results=(),
        checkpoint=None,
        artifacts=run_artifacts.ended(job),
        replaced=tuple(one for one in stored_content.saved(job) if one not in job.stored),
        stored=stored_content.to_evict(job),
    )


def _row(
    waiting: Cell | Verdict,
    pending: Cell | Verdict,
    claimed: Cell | Verdict,
    running: Cell | Verdict,
    ended: Cell | Verdict,
) -> dict[State, Cell | Verdict]:
    return {
        State.WAITING: waiting,
        State.PENDING: pending,
        State.CLAIMED: claimed,
        State.RUNNING: running,
        **dict.fromkeys(TERMINAL, ended),
    }


_EXISTS, _HELD, _FINISHED, _WAITS = Verdict.EXISTS, Verdict.HELD, Verdict.FINISHED, Verdict.WAITING
_ALONE = Verdict.QUORUM
_evict, _replaced = stored_content.evict, stored_content.evict_replaced

# fmt: off
TRANSITIONS: Final[dict[type, dict[State, Cell | Verdict]]] = {
    #                     waiting       pending       claimed       running       ended
    ops.JobSchedule: _row(_EXISTS,      _EXISTS,      _EXISTS,      _EXISTS,      _EXISTS),
    ops.JobOffer:    _row(_offer_first, _offer_again, _HELD,        _HELD,        _FINISHED),
    ops.JobClaim:    _row(_WAITS,       _claim_open,  _claim_held,  _claim_held,  _FINISHED),
    ops.JobStart:    _row(_fenced_idle, _fenced_idle, _start_held,  _start_again, _fenced_late),
    ops.JobComplete: _row(_fenced_idle, _fenced_idle, _complete,    _complete,    _fenced_late),
    ops.JobYield:    _row(_fenced_idle, _fenced_idle, _yield,       _yield,       _fenced_late),
    ops.JobArtifact: _row(_fenced_idle, _fenced_idle, _artifact,    _artifact,    _fenced_late),
    ops.JobExpire:   _row(_expire_open, _expire_open, _expire_held, _expire_held, _expire_late),
    ops.JobResolve:  _row(_resolve,     _ALONE,       _ALONE,       _ALONE,       _FINISHED),
    ops.JobCancel:   _row(_cancel,      _cancel,      _cancel,      _cancel,      _FINISHED),
    ops.JobEvict:    _row(_replaced,    _replaced,    _replaced,    _replaced,    _evict),
}
# fmt: on
