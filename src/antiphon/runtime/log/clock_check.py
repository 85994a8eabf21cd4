"""Checks this machine's clock against the mesh's, and reports in words when it is wrong.

The rule is in `core.clock.mesh_time`. structlog is imported only when there is something to log:
most nodes never have anything.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from antiphon.core.clock.mesh_time import Bounds, Now
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import WallClock

SAID_EVERY_S: Final = 60.0
HINT: Final = "set this machine's clock (timedatectl set-ntp true); it then continues by itself"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


_log = LazyLogger(__name__)


def in_words(span_ms: float) -> str:
    """A length of time in its two largest units."""
    seconds = span_ms / 1000
    for (unit_s, unit), (next_s, next_unit) in pairwise(_UNITS):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} {seconds % unit_s // next_s:.0f} {next_unit}"
    return f"{seconds:.1f} s"


class MeshTime:
    """Bounds of the mesh's time, as one node knows them."""

    def __init__(self, wall: WallClock) -> None:
        """Nothing is known before the first record."""
        self._wall = wall
        self._bounds = Bounds()
        self._said_s = -math.inf

    def _boot_ms(self) -> float:
        return self._wall.boot_s() * 1000

    def saw(self, commit_ms: int, *, max_drift_ms: int) -> None:
        """A record was read: the time is at least its stamp."""
        self._bounds.saw(commit_ms, boot_ms=self._boot_ms())
        behind_ms = commit_ms - self._wall.now_ms()
        if behind_ms > max_drift_ms:
            self._say(f"this machine's clock is {in_words(behind_ms)} behind the mesh's")

    def told(self, commit_ms: int, stamp_ms: int, *, sent_boot_s: float, max_drift_ms: int) -> None:
        """A record of ours, stamped `stamp_ms` by us, was stored with the stamp `commit_ms`."""
        was_refused = stamp_ms > commit_ms + max_drift_ms
        self._bounds.told(
            commit_ms,
            sent_boot_ms=sent_boot_s * 1000,
            boot_ms=self._boot_ms(),
            was_refused=was_refused,
        )
        ahead_ms = self._wall.now_ms() - commit_ms
        if was_refused and ahead_ms > max_drift_ms:
            self._say(ahead_words(ahead_ms))
        elif not was_refused and self._said_s > -math.inf:
            self._said_s = -math.inf
            _log.warning("clock_right")  # the same level as the warning that it ends

    def now(self) -> Now:
        """This machine's time, and what is known of the mesh's time."""
        boot_ms, bounds = self._boot_ms(), self._bounds
        return Now(self._wall.now_ms(), bounds.least_ms(boot_ms), bounds.most_ms(boot_ms))

    def most_ms(self) -> float:
        """The latest that it can be; infinite where that is unknown, or was known too long ago."""
        return self._bounds.most_ms(self._boot_ms())

    def is_ahead(self, max_drift_ms: int) -> bool:
        """Whether this machine's clock is known to be too far ahead to sign anything."""
        return self.now().ahead_ms > max_drift_ms

    def fault(self, max_drift_ms: int) -> str:
        """What is wrong with this machine's clock; empty if nothing is known to be wrong."""
        now = self.now()
        if now.ahead_ms > max_drift_ms:
            return ahead_words(now.ahead_ms)
        if now.behind_ms > max_drift_ms:
            return f"this machine's clock is {in_words(now.behind_ms)} behind the mesh's"
        return ""

    def complain(self, max_drift_ms: int) -> str:
        """The same, and logged now and then."""
        words = self.fault(max_drift_ms)
        if words:
            self._say(words)
        return words

    def _say(self, words: str) -> None:
        if self._wall.boot_s() - self._said_s >= SAID_EVERY_S:
            self._said_s = self._wall.boot_s()
            _log.warning("clock_wrong", problem=words, hint=HINT)


def ahead_words(ahead_ms: float) -> str:
    """The sentence for a clock that is ahead."""
    return f"this machine's clock is {in_words(ahead_ms)} ahead of the mesh's"
