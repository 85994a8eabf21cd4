"""A lock's state as derived from the log (spec §10).

A state has no clock: whether a hold's time is over depends on who asks, so `Hold.is_over` takes
both clocks.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.chain_check import has_lost_authority
from antiphon.core.family import Lane, Over
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import name_of_key

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control

FAMILY: Final = "locks"


class LockState(StrEnum):
    """What an op finds, by its own clocks."""

    ABSENT = "absent"
    """Nobody ever took it."""
    FREE = "free"
    """Released, broken, or its holder lost its authority."""
    OVER = "over"
    """Not released, but both clocks are past the deadline: as free as `FREE`."""
    HELD = "held"


class Hold(Struct, frozen=True, kw_only=True, gc=False):
    """Who holds a lock, since when and until when."""

    node: str
    agent: str
    fence: str
    """The packed timestamp of the op that began the hold."""
    taken_ms: int
    deadline_ms: int
    ttl_ms: int
    auth_by: str
    """Whose authority the hold is under: the holder's, or that of whoever passed it on."""
    auth: tuple[str, ...]
    auth_seq: int

    def is_over(self, wall_ms: int, commit_ms: int) -> bool:
        """Whether both clocks are past the deadline; neither alone is evidence (spec §7.2)."""
        return wall_ms > self.deadline_ms and commit_ms > self.deadline_ms

    def is_of(self, node: str, agent: str) -> bool:
        """Whether this agent of this node is the holder."""
        return self.node == node and self.agent == agent


class Lock(Struct, frozen=True, kw_only=True, gc=False):
    """One lock: its hold, and what is remembered of earlier ones."""

    kind: str
    """Its scope."""
    key: str
    hold: Hold | None
    """None if it is free whatever the time."""
    last_fence: str
    """The newest fence; every later one is greater, because every later op is newer."""
    entry_seq: int
    """The op from which this state follows, together with the ops after it (`table.enter`)."""
    hlc: tuple[int, int]
    hlc_author: str

    def found(self, wall_ms: int, commit_ms: int) -> LockState:
        """What an op with these clocks finds."""
        if self.hold is None:
            return LockState.FREE
        return LockState.OVER if self.hold.is_over(wall_ms, commit_ms) else LockState.HELD


def standing(control: Control, lock: Lock | None, seq: int) -> Lock | None:
    """The lock before a sequence: a hold ends where its authority ended."""
    if lock is None or lock.hold is None or not _is_lost(control, lock.hold, seq):
        return lock
    return replace(lock, hold=None)


def _is_lost(control: Control, hold: Hold, seq: int) -> bool:
    since = hold.auth_seq
    if has_lost_authority(control, hold.auth_by, hold.auth, since=since, seq=seq):
        return True
    shown = control.quarantine_of(hold.node)
    return shown is not None and shown.shown_seq > since


class LockLane(Lane, frozen=True, gc=False):
    """The last sequence on the lock's subject, and the lock."""

    tails: tuple[int, ...] = (0,)
    state: Lock | None = None

    def over(self, control: Control) -> Over | None:
        """A lock is over whenever nobody can hold it: released, or past its deadline."""
        lock = standing(control, self.state, control.since)
        if lock is None:
            return None
        return Over(max(self.time_ms, lock.hold.deadline_ms if lock.hold is not None else 0))


def lock_key(scope: str, key: str) -> LaneKey:
    """The key of a lock's lane."""
    return LaneKey(FAMILY, scope, name_of_key(key))
