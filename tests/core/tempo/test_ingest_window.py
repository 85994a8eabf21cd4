"""Batch work is let in on review beats, and a beat follows from the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.tempo.ingest_window import ingest_opens_ms, is_ingest_open
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases
from tests.core.strategies import BRISK

PHASES = Phases(plan=2, work=4, review=2)


@pytest.mark.req("B27")
def test_batch_work_is_let_in_on_review_beats_only():
    meter = Meter()
    opened = [is_ingest_open(meter, PHASES, beat * meter.beat_ms) for beat in range(16)]
    assert opened == ([False] * 6 + [True] * 2) * 2


@pytest.mark.req("B27")
@BRISK
@given(st.integers(0, 2**40), st.integers(6, 24), st.integers(0, 60_000))
def test_the_next_window_is_the_first_time_that_is_open(now_ms, bpm, anchor_ms):
    meter = Meter(bpm=bpm, anchor_ms=anchor_ms)
    opens_ms = ingest_opens_ms(meter, PHASES, now_ms)
    assert opens_ms >= now_ms
    assert is_ingest_open(meter, PHASES, opens_ms)
    assert opens_ms == now_ms or not is_ingest_open(meter, PHASES, opens_ms - 1)
    assert is_ingest_open(meter, PHASES, now_ms) == (opens_ms == now_ms)
