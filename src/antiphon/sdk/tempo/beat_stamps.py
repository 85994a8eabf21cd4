"""When something happened, in beats: it follows from the time and the tempo policy (spec §11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.jobs.words import DEGRADED as DEGRADED  # noqa: PLC0414 - interfaces

if TYPE_CHECKING:
    from antiphon.core.tempo.policy import TempoPolicy
    from antiphon.runtime.log.session import Session


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


def beat_stamps(session: Session) -> BeatStamps:
    """Beats by the mesh's policy, as this process read it last."""
    return BeatStamps(session.control.tempo)
