"""How long a hold on a lock lasts, when it is renewed, and when its holder stops without one.

A hold of some time is renewed when a third of them has passed. Its holder stops at two thirds
without an acknowledged renewal, as workers do with leases (spec §7.2). A hold in beats ends with a
phase or a bar of the mesh's tempo; a renewal moves it to the end of the next one.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases

EDIT_MS: Final = 30_000
"""How long a lock outlives the holder of an edit, which is the default."""
TASK_MS: Final = 300_000
"""The same for a long task."""
Boundary = Literal["phase", "bar"]


class HoldTime(Struct, frozen=True):
    """One hold's time, counted from when its op was drafted."""

    ttl_ms: int
    unit_ms: int
    """What thirds are counted of."""

    @property
    def renew_after_ms(self) -> int:
        """When to renew it."""
        return max(self.ttl_ms - self.unit_ms * 2 // 3, 0)

    @property
    def stop_after_ms(self) -> int:
        """When to stop without a renewal: a third is left for clocks that differ."""
        return max(self.ttl_ms - self.unit_ms // 3, 0)


def fixed(ttl_ms: int) -> HoldTime:
    """A hold of some milliseconds."""
    return HoldTime(ttl_ms, ttl_ms)


def until_boundary(
    which: Boundary, meter: Meter, phases: Phases, now_ms: int, *, after_ms: int, least_ms: int
) -> HoldTime:
    """A hold that ends with a phase or a bar, the first one that is far enough ahead.

    `after_ms` is where the present hold ends, for a renewal; 0 for a first one.
    """
    beats = meter.bar_len if which == "bar" else min(count for _, count in phases)
    unit_ms = max(beats * meter.beat_ms, least_ms)
    at_least_ms = max(now_ms + unit_ms * 2 // 3, now_ms + least_ms, after_ms + 1)
    ends_ms = _boundary(which, meter, phases, at_least_ms)
    return HoldTime(ends_ms - now_ms, unit_ms)


def _boundary(which: Boundary, meter: Meter, phases: Phases, at_least_ms: int) -> int:
    """The first end of a phase or bar at or after a time."""
    began_ms = meter.downbeat_before(at_least_ms - 1)
    if which == "phase":
        for phase in ("plan", "work", "review"):
            # The last phase ends with the bar, however its beats were written.
            beats = meter.bar_len if phase == "review" else phases.end_of(phase)
            ends_ms = began_ms + min(beats, meter.bar_len) * meter.beat_ms
            if ends_ms >= at_least_ms:
                return ends_ms
    return began_ms + meter.bar_ms
