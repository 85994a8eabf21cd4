"""The state machine of a lock, as a table (spec §10).

    absent | free | over ─take→ held ─release | break→ free
                                  ▲ │
                                  └─┘  take with its fence: renewed; release with `pass`: the next

`TRANSITIONS` maps (op type, what it finds) to the rule for that cell. Every cell is filled. A hold
is over when the op's clock and the log's are past its deadline, so an expired lock is free at once
and nothing has to be written or swept for that. Between the two, when only one clock is past it, a
lock can neither be renewed nor taken.

A fence is the packed timestamp of the op that began the hold. The reducer has checked that an op is
newer than the last accepted one on its lane, so a fence is greater than every earlier one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from antiphon.core.authority.chain_check import has_lost_authority
from antiphon.core.clock.hlc import pack
from antiphon.core.families.locks import ops
from antiphon.core.families.locks.state import Hold, Lock, LockState
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import At
    from antiphon.core.record.op import Op

Cell = Callable[[Any, Any, "At"], Lock | Verdict]


def standing(control: Control, lock: Lock | None, seq: int) -> Lock | None:
    """The lock before a sequence: a hold ends where its authority ended."""
    if lock is None or lock.hold is None or not _is_lost(control, lock.hold, seq):
        return lock
    return replace(lock, hold=None)


def _is_lost(control: Control, hold: Hold, seq: int) -> bool:
    since = hold.auth_seq
    if has_lost_authority(control, hold.auth_by, hold.auth, since=since, seq=seq):
        return True
    shown = control.standing_of(hold.node)
    return shown is not None and shown.shown_seq > since


def step(lock: Lock | None, op: Op, at: At) -> Lock | Verdict:
    """The lock after an op, or the verdict if nothing changes."""
    found = LockState.ABSENT if lock is None else lock.found(op.hlc[0], at.commit_ms)
    cell = TRANSITIONS[type(op)][found]
    return cell if isinstance(cell, Verdict) else cell(lock, op, at)


def unfinished(lock: Lock) -> str:
    """Why a lock cannot be exported as a bundle yet; empty if it can."""
    return "" if lock.hold is None else "the lock is held"


def _is_ttl_allowed(ttl_ms: int, at: At) -> bool:
    return at.control.rules.lease_min_ms <= ttl_ms <= at.control.rules.lease_max_ms


def _take_free(lock: Lock | None, op: ops.LockTake, at: At) -> Lock | Verdict:
    body = op.body
    if body.fence is not None:
        return Verdict.FENCE
    if not _is_ttl_allowed(body.ttl_ms, at):
        return Verdict.LEASE
    return _held(lock, op, at, node=op.author, agent=body.agent, ttl_ms=body.ttl_ms)


def _take_over(lock: Lock, op: ops.LockTake, at: At) -> Lock | Verdict:
    """Its time is over: free for everybody, and too late to renew."""
    hold, body = _hold_of(lock), op.body
    if body.fence is not None and body.fence == hold.fence:
        return Verdict.LEASE_OVER
    return _take_free(lock, op, at)


def _take_held(lock: Lock, op: ops.LockTake, at: At) -> Lock | Verdict:
    hold, body = _hold_of(lock), op.body
    wall_ms = op.hlc[0]
    if body.fence is None:
        return Verdict.LOCKED
    if body.fence != hold.fence:
        return Verdict.FENCE
    if not hold.is_of(op.author, body.agent):
        return Verdict.NOT_CLAIMER
    # The hold must still run by both clocks, or a holder could backdate its renewal.
    if wall_ms > hold.deadline_ms or at.commit_ms > hold.deadline_ms:
        return Verdict.LEASE_OVER
    if not _is_ttl_allowed(body.ttl_ms, at):
        return Verdict.LEASE
    renewed = replace(
        hold,
        deadline_ms=max(hold.deadline_ms, wall_ms + body.ttl_ms),
        ttl_ms=body.ttl_ms,
        auth_by=op.author,
        auth=op.auth,
        auth_seq=at.seq,
    )
    return replace(lock, hold=renewed, hlc=op.hlc, hlc_author=op.author)


def _release_idle(lock: Lock, op: ops.LockRelease, _: At) -> Lock | Verdict:
    is_repeated = op.body.fence == lock.last_fence and op.body.pass_to is None
    return Verdict.ALREADY if is_repeated else Verdict.FENCE


def _release(lock: Lock, op: ops.LockRelease, at: At) -> Lock | Verdict:
    hold, body = _hold_of(lock), op.body
    if body.fence != hold.fence:
        return Verdict.FENCE
    if not hold.is_of(op.author, body.agent):
        return Verdict.NOT_CLAIMER
    if body.pass_to is None:
        return _freed(lock, op)
    if op.hlc[0] > hold.deadline_ms or at.commit_ms > hold.deadline_ms:
        return Verdict.LEASE_OVER
    if not _is_ttl_allowed(body.pass_to.ttl_ms, at):
        return Verdict.LEASE
    to = body.pass_to
    return _held(lock, op, at, node=to.node, agent=to.agent, ttl_ms=to.ttl_ms)


def _break(lock: Lock, op: ops.LockBreak, _: At) -> Lock | Verdict:
    named = op.body.fence
    return Verdict.FENCE if named not in {None, _hold_of(lock).fence} else _freed(lock, op)


def _hold_of(lock: Lock) -> Hold:
    if lock.hold is None:
        raise TypeError("a cell for held locks was given a free one")
    return lock.hold


def _freed(lock: Lock, op: Op) -> Lock:
    return replace(lock, hold=None, hlc=op.hlc, hlc_author=op.author)


def _held(
    lock: Lock | None,
    op: ops.LockTake | ops.LockRelease,
    at: At,
    *,
    node: str,
    agent: str,
    ttl_ms: int,
) -> Lock:
    fence, wall_ms = pack(op.hlc), op.hlc[0]
    hold = Hold(
        node=node,
        agent=agent,
        fence=fence,
        taken_ms=wall_ms,
        deadline_ms=wall_ms + ttl_ms,
        ttl_ms=ttl_ms,
        auth_by=op.author,
        auth=op.auth,
        auth_seq=at.seq,
    )
    return Lock(
        kind=op.body.kind,
        key=op.body.key,
        hold=hold,
        last_fence=fence,
        takes=1 if lock is None else lock.takes + 1,
        hlc=op.hlc,
        hlc_author=op.author,
    )


def _row(
    absent: Cell | Verdict, free: Cell | Verdict, over: Cell | Verdict, held: Cell | Verdict
) -> dict[LockState, Cell | Verdict]:
    return {
        LockState.ABSENT: absent,
        LockState.FREE: free,
        LockState.OVER: over,
        LockState.HELD: held,
    }


_NONE, _ALREADY = Verdict.NO_LOCK, Verdict.ALREADY

# fmt: off
TRANSITIONS: Final[dict[type, dict[LockState, Cell | Verdict]]] = {
    #                     absent      free           over        held
    ops.LockTake:    _row(_take_free, _take_free,    _take_over, _take_held),
    ops.LockRelease: _row(_NONE,      _release_idle, _release,   _release),
    ops.LockBreak:   _row(_NONE,      _ALREADY,      _ALREADY,   _break),
}
# fmt: on
