"""Bugs in the rules of locks and in what their holders do. They show only where locks are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.families.locks import table
from antiphon.core.families.locks.ops import LockRelease
from antiphon.core.families.locks.state import Hold, Lock, LockState
from antiphon.core.policy.locks.lock_time import HoldTime
from antiphon.testing.mutations.patch import patched


@contextmanager
def locks_by_one_clock() -> Iterator[None]:
    """A hold is over when its taker's clock says so; the log's is not asked."""
    with patched(Hold, "is_over", lambda self, wall_ms, _: wall_ms > self.deadline_ms):
        yield


@contextmanager
def fence_kept_on_pass() -> Iterator[None]:
    """A lock that is passed on keeps its fence: the next holder has the last one's."""
    cells = table.TRANSITIONS[LockRelease]
    really_release: Any = cells[LockState.HELD]

    def release(lock: Any, op: Any, at: Any) -> Any:
        after = really_release(lock, op, at)
        if not isinstance(after, Lock) or after.hold is None:
            return after
        fence = lock.hold.fence
        return replace(after, last_fence=fence, hold=replace(after.hold, fence=fence))

    with patched(cells, LockState.HELD, release):
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
)
