"""What is in deploy/monitoring is about metrics and commands that there are."""

import json
import re
from pathlib import Path

import pytest
import yaml

from antiphon.interfaces.cli.application import COMMANDS

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
METRIC = re.compile(r"antiphon_[a-z_]+")
PARTS_OF_A_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


def alerts():
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries_of_the_board():
    board = json.loads((MONITORING / "grafana.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def documented():
    """The metrics that the page on HTTP lists."""
    rows = [
        line
        for line in (ROOT / "docs/reference/http.md").read_text().splitlines()
        if line.startswith("| `antiphon_") or "A worker has" in line
    ]
    return {name for line in rows for name in METRIC.findall(line)}


@pytest.mark.parametrize("query", [rule["expr"] for rule in alerts()] + queries_of_the_board())
def test_queries_ask_for_metrics_that_there_are(query):
    asked = {PARTS_OF_A_HISTOGRAM.sub("", name) for name in METRIC.findall(query)}
    assert asked <= documented()
    assert asked or query.startswith("up")


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_type(rule):
    typed = re.findall(r"antiphon ([a-z]+)", rule["annotations"]["action"])
    assert set(typed) <= set(COMMANDS)
    assert typed or rule["alert"] in {"AntiphonDown", "AntiphonDiskFull"}
