"""What stamps show about the mesh's time, which is the engine's (spec §4.2).

Reading a record shows that it is now at least as late as its stamp; the stamp of a record that we
have just written shows also how late it is at most. Between records the time is carried on by a
clock that nobody sets (`boot_ms`). No verdict follows from this: it saves a node from signing
what could only be refused.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

BELIEVED_MS: Final = 20_000
"""How long a stamp of our own is believed: the engine's clock may be set as well."""
BELIEVED_MAX_MS: Final = 600_000
"""Each refusal in a row is believed twice as long as the one before, up to this."""


class Now(NamedTuple):
    """What one node knows about the time right now."""

    wall_ms: int
    """This machine's clock."""
    least_ms: float = -math.inf
    """The mesh's time is not earlier."""
    most_ms: float = math.inf
    """The mesh's time is not later; infinite where that is not known."""

    @property
    def latest_ms(self) -> float:
        """The later of this machine's time and the latest that the mesh's can be, if known."""
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
    """How late it is at least and at most, as one node has seen it."""

    def __init__(self) -> None:
        """Nothing is known before the first record."""
        self._least_ms = -math.inf
        self._most_ms = math.inf
        self._believed_ms = BELIEVED_MS
        self._believed_until_ms = -math.inf

    def saw(self, commit_ms: int, *, boot_ms: float) -> None:
        """A record was read: it is not earlier than its stamp."""
        self._least_ms = max(self._least_ms, commit_ms - boot_ms)
        self._most_ms = max(self._most_ms, self._least_ms)

    def told(
        self, commit_ms: int, *, sent_boot_ms: float, boot_ms: float, was_refused: bool
    ) -> None:
        """A record of our own was stored as of `commit_ms`; refused if our clock was ahead."""
        self._most_ms = commit_ms - sent_boot_ms
        self._least_ms = commit_ms - boot_ms
        if not was_refused:
            self._believed_ms = BELIEVED_MS
        self._believed_until_ms = boot_ms + self._believed_ms
        if was_refused:
            self._believed_ms = min(self._believed_ms * 2, BELIEVED_MAX_MS)

    def most_ms(self, boot_ms: float) -> float:
        """How late it is at most; infinite where that is not known, or was known too long ago."""
        return math.inf if boot_ms > self._believed_until_ms else self._most_ms + boot_ms

    def least_ms(self, boot_ms: float) -> float:
        """How late it is at least."""
        return self._least_ms + boot_ms
