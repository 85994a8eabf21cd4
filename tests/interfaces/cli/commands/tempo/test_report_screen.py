"""What `antiphon report` prints."""

import re

import pytest

from antiphon.core.tempo.bars.alarms import Alarm
from antiphon.core.tempo.bars.kpis import Tally, kpis
from antiphon.core.tempo.messages import BarReport, Suggestion
from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.time_text import time_text
from antiphon.interfaces.cli.commands.tempo.report import bar, report_object, show, sparkline
from antiphon.interfaces.cli.screen.terminal import out
from antiphon.runtime.replica.replica_reports import KeptReport


@pytest.fixture(autouse=True)
def _fresh_console(monkeypatch):
    monkeypatch.setattr(out, "_console", None)


def kept(number, **fields):
    tally = Tally(
        beats=8, tasks=10, succeeded=number, beats_used=20, promises_due=4, promises_broken=1
    )
    start_ms = number * 32_000
    report = BarReport(
        cluster_id="mesh",
        window_start=time_text(start_ms),
        window_end=time_text(start_ms + 32_000),
        tempo_bpm=15,
        counts={"executing": 7, "waiting": 1, "done": number},
        promises_due=4,
        promises_broken=1,
        queue_depth={"build": 3 * number},
        utilisation={"cpu": 0.5},
        kpis=kpis(tally),
        **fields,
    )
    return KeptReport(start_ms=start_ms, end_ms=start_ms + 32_000, report=report, tally=tally)


def lines_of(capsys):
    return {
        re.split(r"\s{2,}", line.strip())[0]: line for line in capsys.readouterr().out.splitlines()
    }


@pytest.mark.req("B4", "B22")
def test_the_newest_bar_is_shown_with_how_each_number_developed(capsys):
    show([kept(1), kept(2), kept(4)])
    lines = lines_of(capsys)
    assert "15 bpm, 8 beats, 10 tasks" in next(iter(lines.values()))
    assert lines["executing"].count("█") == 24
    assert lines["waiting"].count("█") == 3
    assert lines["queue build"].split()[2:] == ["12", "▁▃█"]
    assert lines["promises broken"].split()[2:4] == ["1", "3"]
    assert lines["tnt"].split()[-3:] == ["0.50", "0.29", "▁▃█"]
    assert lines["cpd"].split()[-3:] == ["-", "-", "···"]


def test_one_bar_alone_has_no_plot_of_bars(capsys):
    show([kept(1)])
    printed = capsys.readouterr().out
    assert "LAST" not in printed
    assert "▃" not in printed


@pytest.mark.req("B16", "B19")
def test_alarms_and_suggestions_are_sentences(capsys):
    said = Suggestion(tempo_bpm=14, phases=Phases(plan=1, work=5, review=2), why="jobs overran")
    one = kept(1, suggested=said)
    alarm = Alarm("overrun_rate", "3 of 9 tasks overran")
    show([KeptReport(start_ms=0, end_ms=1, report=one.report, tally=one.tally, alarms=(alarm,))])
    printed = capsys.readouterr().out
    assert "✗ overrun_rate: 3 of 9 tasks overran" in printed
    assert "suggested  14 bpm, plan 1 work 5 review 2: jobs overran" in printed


def test_json_has_every_field_also_the_empty_ones():
    found = report_object(kept(1))
    assert set(BarReport.__struct_fields__) | {"alarms"} == found.keys()
    assert (found["overruns"], found["suggested"], found["alarms"]) == (0, None, [])


def test_plots_of_nothing_and_of_equal_values():
    assert bar(0, 5) == ""
    assert bar(1, 1000) == "█"
    assert sparkline([]) == ""
    assert sparkline([None, None]) == "··"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([2, None, 2]) == "▄·▄"
