"""When batch work is let in: on review beats, when agents sum up instead of starting (spec §11).

Archiving, aggregation and other ingest of many things at once would compete with the work of a bar,
so it waits for its review beats. What is stored then, or at any time, has a beat that follows from
the tempo at its time (`antiphon.core.tempo.tempo_history`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.core.tempo.meter import Meter
    from antiphon.core.tempo.phases import Phases


def is_ingest_open(meter: Meter, phases: Phases, now_ms: int) -> bool:
    """Whether batch work may begin now."""
    return phases.at(meter.beat_at(now_ms).index) == "review"
