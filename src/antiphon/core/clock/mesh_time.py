"""What commit times show about the mesh's time, which is the engine's clock (spec §4.2).

A record that was read shows that it is now at least as late as its commit time. The commit time of
a record that this node has just written also shows how late it is at most. Between records a clock
that is never set (`boot_ms`) measures the time. No verdict depends on this: it keeps a node from
signing what would be rejected.

The engine's clock may be set, too: records that it stamped while it was minutes ahead say nothing
about the time once it is right again. So no bound is used for long.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

BELIEVED_MS: Final = 20_000
"""How long the commit time of an own record is used: the engine's clock may be set too."""
BELIEVED_MAX_MS: Final = 600_000
"""Each refusal in a row is used twice as long as the one before, up to this."""
READ_BELIEVED_MS: Final = 60_000
"""The commit times of records that were read are used for this long, at most twice this."""


class Now(NamedTuple):
    """What one node knows about the time right now."""

    wall_ms: int
    """This machine's clock."""
    least_ms: float = -math.inf
    """The mesh's time is at least this."""
    most_ms: float = math.inf
    """The mesh's time is at most this; infinite if unknown."""

    @property
    def latest_ms(self) -> float:
        """The later of this machine's time and the latest possible mesh time, if known."""
        return self.wall_ms if math.isinf(self.most_ms) else max(self.wall_ms, self.most_ms)

    @property
    def ahead_ms(self) -> float:
        """How far this machine's clock is ahead of the mesh's, at least."""
        return self.wall_ms - self.most_ms

    @property
    def behind_ms(self) -> float:
        """How far this machine's clock is behind the mesh's, at least."""
        return self.least_ms - self.wall_ms


class Bounds:
    """The bounds of the mesh's time, as one node has seen them."""

    def __init__(self) -> None:
        """Nothing is known before the first record is read."""
        self._most_ms = math.inf
        self._believed_ms = BELIEVED_MS
        self._believed_until_ms = -math.inf
        self._least_ms = -math.inf
        """By the records of the current period."""
        self._least_before_ms = -math.inf
        """By those of the period before it."""
        self._period_end_ms = -math.inf

    def saw(self, commit_ms: int, *, boot_ms: float) -> None:
        """A record was read: the mesh's time is at least its commit time."""
        if boot_ms > self._period_end_ms:
            is_recent = boot_ms <= self._period_end_ms + READ_BELIEVED_MS
            self._least_before_ms = self._least_ms if is_recent else -math.inf
            self._least_ms = -math.inf
            self._period_end_ms = boot_ms + READ_BELIEVED_MS
        self._least_ms = max(self._least_ms, commit_ms - boot_ms)
        self._most_ms = max(self._most_ms, self._least_ms)

    def told(
        self, commit_ms: int, *, sent_boot_ms: float, boot_ms: float, was_refused: bool
    ) -> None:
        """An own record was stored at `commit_ms`, or refused because this clock was ahead."""
        self._most_ms = commit_ms - sent_boot_ms
        self._least_ms, self._least_before_ms = commit_ms - boot_ms, -math.inf
        self._period_end_ms = boot_ms + READ_BELIEVED_MS
        if not was_refused:
            self._believed_ms = BELIEVED_MS
        self._believed_until_ms = boot_ms + self._believed_ms
        if was_refused:
            self._believed_ms = min(self._believed_ms * 2, BELIEVED_MAX_MS)

    def most_ms(self, boot_ms: float) -> float:
        """The latest possible mesh time; infinite if unknown, or known too long ago."""
        return math.inf if boot_ms > self._believed_until_ms else self._most_ms + boot_ms

    def least_ms(self, boot_ms: float) -> float:
        """The earliest possible mesh time; minus infinity if unknown, or known too long ago."""
        if boot_ms <= self._period_end_ms:
            return max(self._least_ms, self._least_before_ms) + boot_ms
        if boot_ms <= self._period_end_ms + READ_BELIEVED_MS:
            return self._least_ms + boot_ms
        return -math.inf
