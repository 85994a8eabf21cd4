"""The plain numbers of pulse and reverb."""

import dataclasses

import pytest

from antiphon.runtime.tempo.tempo_metrics import TempoMetrics


def test_the_numbers_begin_at_zero_and_two_nodes_share_none():
    one, other = TempoMetrics(), TempoMetrics()
    assert (one.mode, one.degraded, one.beats_sent, one.kpis) == ("off", "", 0, {})
    one.beats_sent += 1
    one.kpis["tnt"] = 0.5
    assert (other.beats_sent, other.kpis) == (0, {})


def test_a_misspelt_number_is_an_error_and_no_new_number():
    with pytest.raises(AttributeError):
        TempoMetrics().beat_sent = 1  # type: ignore[attr-defined]
    assert all(field.default is not None for field in dataclasses.fields(TempoMetrics))
