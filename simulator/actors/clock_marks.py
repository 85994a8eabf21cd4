"""The clock mark of a simulated machine: what its disk holds, and what a process reaches."""

from __future__ import annotations

from antiphon.core.clock.hlc import Stretch


class DiskMark:
    """The clock mark on a machine's disk; a dead process no longer reaches it."""

    def __init__(self) -> None:
        """Nothing was ever promised."""
        self.wall_ms = 0
        self.spent: tuple[Stretch, ...] = ()


class ProcessMark:
    """`Mark` of one process."""

    def __init__(self, disk: DiskMark) -> None:
        """Alive until `cut`."""
        self._disk: DiskMark | None = disk

    def load(self) -> int:
        """What the disk holds."""
        return self._disk.wall_ms if self._disk else 0

    def load_spent(self) -> tuple[Stretch, ...]:
        """The same of what was used up too early."""
        return self._disk.spent if self._disk else ()

    def store(self, wall_ms: int, spent: tuple[Stretch, ...] = ()) -> None:
        """Write through."""
        if self._disk is not None:
            self._disk.wall_ms, self._disk.spent = wall_ms, spent

    def cut(self) -> None:
        """The process died."""
        self._disk = None
