"""Batch work is let in on review beats, and a beat follows from the time."""

import pytest

from antiphon.core.tempo.ingest_window import is_ingest_open
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases

PHASES = Phases(plan=2, work=4, review=2)


@pytest.mark.req("B27")
def test_batch_work_is_let_in_on_review_beats_only():
    meter = Meter()
    opened = [is_ingest_open(meter, PHASES, beat * meter.beat_ms) for beat in range(16)]
    assert opened == ([False] * 6 + [True] * 2) * 2
