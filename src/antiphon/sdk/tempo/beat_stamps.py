"""When something happened, in beats: it follows from the time and the tempo policy (spec §11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.jobs.ops import DEGRADED as DEGRADED  # noqa: PLC0414 - interfaces

if TYPE_CHECKING:
    from antiphon.core.tempo.policy import TempoPolicy


class BeatStamp(Struct, frozen=True):
    """A beat of the policy's tempo. Where a leader adapts the tempo, its own beats differ."""

    beat: int
    """Of its bar, from 1."""
    phase: str


class BeatStamps:
    """Beats by one tempo policy."""

    def __init__(self, policy: TempoPolicy) -> None:
        """The policy as it is now: an earlier one is not looked up."""
        self._meter, self._phases = policy.meter, policy.beats

    def at(self, at_ms: int) -> BeatStamp:
        """The beat at a time."""
        beat = self._meter.beat_at(at_ms)
        return BeatStamp(beat.index, self._phases.at(beat.index))
