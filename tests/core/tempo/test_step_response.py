"""The drawing of the controller's step response is what the controller does."""

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load_script():
    loader = importlib.machinery.SourceFileLoader("tempo_plot", str(ROOT / "scripts/tempo-plot"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tempo_plot", loader))
    loader.exec_module(module)
    return module


plot = load_script()


@pytest.mark.req("B16")
def test_the_drawing_is_up_to_date():
    assert (ROOT / plot.FILE).read_text() == plot.svg(), "run scripts/tempo-plot --write"


@pytest.mark.req("B16")
def test_each_step_of_load_is_answered_and_then_the_tempo_rests():
    tempo, _ = plot.traces()
    at = {minute: [bpm for when, bpm in tempo if when <= minute][-1] for minute in range(80)}
    assert at[4] == 15
    assert at[20] == at[29] > 18, "it rises while jobs wait, and rests where they begin to overrun"
    assert at[45] == at[54] < 16, "it falls when jobs take longer"
    assert at[65] == at[79]
