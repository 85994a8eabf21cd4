"""What `antiphon doctor` says about clocks, from the cards that answer a roll call."""

import pytest

from antiphon.core.presence.cards import Card
from antiphon.interfaces.cli.checks.nodes import clock_findings

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def cards(*off_ms):
    return [
        Card(
            node=f"did:key:{number}",
            alias=f"machine-{number}",
            role="worker",
            version="1",
            at_ms=NOW_MS + off,
        )
        for number, off in enumerate(off_ms)
    ]


@pytest.mark.parametrize("off_ms", [(), (0,), (1_900, -1_900, 0)])
def test_clocks_that_agree_are_nothing_to_speak_of(off_ms):
    assert clock_findings(cards(*off_ms), now_ms=NOW_MS) == []


@pytest.mark.parametrize(
    "off_ms, words",
    [
        (
            (-3 * HOUR_MS,),
            "this machine's clock is 3 h 0 min ahead, compared with 1 of the 1 nodes",
        ),
        (
            (HOUR_MS, HOUR_MS, 0),
            "this machine's clock is 1 h 0 min behind, compared with 2 of the 3",
        ),
    ],
)
def test_where_most_show_another_time_it_is_this_machines_clock(off_ms, words):
    (finding,) = clock_findings(cards(*off_ms), now_ms=NOW_MS)
    assert (finding.level, finding.hint) == ("wrong", "timedatectl set-ntp true")
    assert words in finding.sentence


def test_a_single_clock_that_is_off_is_named():
    (finding,) = clock_findings(cards(0, 0, HOUR_MS), now_ms=NOW_MS)
    assert finding.level == "warning"
    assert "machine-2 (1 h 0 min ahead)" in finding.sentence
