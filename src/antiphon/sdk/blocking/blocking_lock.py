"""A lock around a plain `with` block.

Nothing can stop a thread in the middle of its work. So a lock that is lost does not end the block:
`check` says so, and so does the end of the block, with `LockLost`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.sdk.locks.lock import Lock


class BlockingLock:
    """A lock that is held; what can be read of it from any thread."""

    def __init__(self, lock: Lock) -> None:
        """Made by `BlockingMesh.lock`."""
        self._lock = lock

    @property
    def key(self) -> str:
        """What is locked."""
        return self._lock.key

    @property
    def scope(self) -> str:
        """The scope of the key."""
        return self._lock.scope

    @property
    def fence(self) -> str:
        """As `Lock.fence`."""
        return self._lock.fence

    @property
    def is_held(self) -> bool:
        """Whether nobody else can hold it at this moment, by this machine's clock."""
        return self._lock.is_held

    def check(self) -> None:
        """`LockLost` if it is no longer certain that this agent holds it. Call it often."""
        self._lock.check()
