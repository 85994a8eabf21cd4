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

from antiphon.core.clock.hlc import pack, unpack
from antiphon.core.families.locks import ops
from antiphon.core.families.locks.state import Hold, Lock, LockState
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import At
    from antiphon.core.record.op import Op

Cell = Callable[[Any, Any, "At"], Lock | Verdict]


def step(lock: Lock | None, op: Op, at: At) -> Lock | Verdict:
    """The lock after an op, or the verdict if nothing changes."""
    found = LockState.ABSENT if lock is None else lock.found(op.hlc[0], at.commit_ms)
    cell = TRANSITIONS[type(op)][found]
    return cell if isinstance(cell, Verdict) else cell(lock, op, at)


def enter(op: Op, seq: int, _: str) -> Lock | None:
    """The lock after an accepted op, from the op alone; a break does not say what it ended."""
    match op:
        case ops.LockTake(body=body) if body.fence is not None:
            return _renewed(op, seq, body.fence)
        case ops.LockTake(body=body):
            return _held(op, seq, node=op.author, agent=body.agent, ttl_ms=body.ttl_ms)
        case ops.LockRelease(body=body) if body.pass_to is not None:
            to = body.pass_to
            return _held(op, seq, node=to.node, agent=to.agent, ttl_ms=to.ttl_ms)
        case ops.LockRelease():
            return _released(op, seq)
        case _:
            return None


def entry(lock: Lock) -> int:
    """The sequence of the op at which a lane in this state can be entered."""
    return lock.entry_seq


def unfinished(lock: Lock) -> str:
    """Why a lock cannot be exported as a bundle yet; empty if it can."""
    return "" if lock.hold is None else "the lock is held"


def _is_ttl_allowed(ttl_ms: int, at: At) -> bool:
    return at.control.rules.lease_min_ms <= ttl_ms <= at.control.rules.lease_max_ms


def _take_free(_: Lock | None, op: ops.LockTake, at: At) -> Lock | Verdict:
    body = op.body
    if body.fence is not None:
        return Verdict.FENCE
    if not _is_ttl_allowed(body.ttl_ms, at):
        return Verdict.LEASE
    return _held(op, at.seq, node=op.author, agent=body.agent, ttl_ms=body.ttl_ms)


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
    # A deadline never goes back: whoever counts on one, such as another process of the same agent,
    # is not wrong later. And the state follows from each renewal alone (`enter`).
    if wall_ms + body.ttl_ms < hold.deadline_ms:
        return Verdict.LEASE
    return _renewed(op, at.seq, body.fence)


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
        return _released(op, at.seq)
    if op.hlc[0] > hold.deadline_ms or at.commit_ms > hold.deadline_ms:
        return Verdict.LEASE_OVER
    if not _is_ttl_allowed(body.pass_to.ttl_ms, at):
        return Verdict.LEASE
    to = body.pass_to
    return _held(op, at.seq, node=to.node, agent=to.agent, ttl_ms=to.ttl_ms)


def _break(lock: Lock, op: ops.LockBreak, _: At) -> Lock | Verdict:
    named = op.body.fence
    if named not in {None, _hold_of(lock).fence}:
        return Verdict.FENCE
    return replace(lock, hold=None, hlc=op.hlc, hlc_author=op.author)


def _hold_of(lock: Lock) -> Hold:
    if lock.hold is None:
        raise TypeError("a cell for held locks was given a free one")
    return lock.hold


def _released(op: ops.LockRelease, seq: int) -> Lock:
    return _lock(op, seq, op.body.fence, None)


def _renewed(op: ops.LockTake, seq: int, fence: str) -> Lock:
    hold = _hold(op, seq, node=op.author, agent=op.body.agent, ttl_ms=op.body.ttl_ms)
    return _lock(op, seq, fence, replace(hold, fence=fence, taken_ms=unpack(fence).wall_ms))


def _held(
    op: ops.LockTake | ops.LockRelease, seq: int, *, node: str, agent: str, ttl_ms: int
) -> Lock:
    hold = _hold(op, seq, node=node, agent=agent, ttl_ms=ttl_ms)
    return _lock(op, seq, hold.fence, hold)


def _hold(
    op: ops.LockTake | ops.LockRelease, seq: int, *, node: str, agent: str, ttl_ms: int
) -> Hold:
    wall_ms = op.hlc[0]
    return Hold(
        node=node,
        agent=agent,
        fence=pack(op.hlc),
        taken_ms=wall_ms,
        deadline_ms=wall_ms + ttl_ms,
        ttl_ms=ttl_ms,
        auth_by=op.author,
        auth=op.auth,
        auth_seq=seq,
    )


def _lock(op: ops.LockTake | ops.LockRelease, seq: int, fence: str, hold: Hold | None) -> Lock:
    return Lock(
        kind=op.body.kind,
        key=op.body.key,
        hold=hold,
        last_fence=fence,
        entry_seq=seq,
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
