"""When batch work is let in: on review beats, when agents sum up instead of starting (spec §11).

Archiving, aggregation and other ingest of many things at once would compete with the work of a bar,
so it waits for its review beats. What is stored then, or at any time, has a beat: that follows from
its time and the tempo in force, and is not written down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.tempo.time_text import hlc_text, time_text

if TYPE_CHECKING:
    from antiphon.core.tempo.meter import Meter
    from antiphon.core.tempo.phases import Phase, Phases


class BeatStamp(Struct, frozen=True, kw_only=True):
    """The beat of an artifact or event, for whoever replays what happened."""

    beat_index: int
    beat_epoch: str
    phase: Phase
    hlc: str


def beat_stamp(meter: Meter, phases: Phases, hlc: tuple[int, int]) -> BeatStamp:
    """The beat at a timestamp, under the tempo and phases that were in force then."""
    beat = meter.beat_at(hlc[0])
    return BeatStamp(
        beat_index=beat.index,
        beat_epoch=time_text(beat.epoch_ms),
        phase=phases.at(beat.index),
        hlc=hlc_text(hlc),
    )


def is_ingest_open(meter: Meter, phases: Phases, now_ms: int) -> bool:
    """Whether batch work may begin now."""
    return phases.at(meter.beat_at(now_ms).index) == "review"


def ingest_opens_ms(meter: Meter, phases: Phases, now_ms: int) -> int:
    """When batch work may begin: now, or with the first review beat of this bar."""
    opens_ms = meter.downbeat_before(now_ms) + phases.end_of("work") * meter.beat_ms
    return max(now_ms, opens_ms)
