"""Bugs in the rules of locks and in what their holders do. They show only where locks are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.families.locks import table
from antiphon.core.families.locks.ops import LockRelease, LockTake
from antiphon.core.families.locks.state import Hold, LockState
from antiphon.core.policy.locks.lock_time import HoldTime
from antiphon.core.record.verdict import Verdict
from simulator.patch import patched


@contextmanager
def locks_by_one_clock() -> Iterator[None]:
    """A hold is over when its taker's clock says so; the log's is not asked."""
    with patched(Hold, "is_over", lambda self, wall_ms, _: wall_ms > self.deadline_ms):
        yield


@contextmanager
def fence_kept_on_pass() -> Iterator[None]:
    """A lock that is passed on keeps its fence: the next holder has the last one's."""
    really_held: Any = table._held  # noqa: SLF001 - the rule that is broken

    def held(op: Any, seq: int, **whose: Any) -> Any:
        after = really_held(op, seq, **whose)
        fence = op.body.fence if isinstance(op, LockRelease) else after.last_fence
        return replace(after, last_fence=fence, hold=replace(after.hold, fence=fence))

    with patched(table, "_held", held):
        yield


@contextmanager
def shorter_renewal_kept() -> Iterator[None]:
    """A renewal for less time than is left is accepted, and the later deadline stays."""
    cells = table.TRANSITIONS[LockTake]
    really_take: Any = cells[LockState.HELD]

    def take(lock: Any, op: Any, at: Any) -> Any:
        after = really_take(lock, op, at)
        ends_ms, rules = op.hlc[0] + op.body.ttl_ms, at.control.rules
        is_short = after is Verdict.LEASE and ends_ms < lock.hold.deadline_ms
        if not is_short or op.body.ttl_ms < rules.lease_min_ms:
            return after
        hold = replace(lock.hold, ttl_ms=op.body.ttl_ms, auth_by=op.author, auth=op.auth)
        kept = replace(hold, auth_seq=at.seq)
        return replace(lock, hold=kept, hlc=op.hlc, hlc_author=op.author)

    with patched(cells, LockState.HELD, take):
        yield


@contextmanager
def holders_never_stop() -> Iterator[None]:
    """A holder whose renewals are not acknowledged goes on for ten times its time."""
    with patched(HoldTime, "stop_after_ms", property(lambda self: self.ttl_ms * 10)):
        yield


MUTANTS: Final[tuple[Callable[[], AbstractContextManager[None]], ...]] = (
    locks_by_one_clock,
    fence_kept_on_pass,
    holders_never_stop,
    shorter_renewal_kept,
)
