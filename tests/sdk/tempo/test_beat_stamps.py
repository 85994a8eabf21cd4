"""What is on the log, and every artifact that it names, has a beat: it follows from the time."""

import pytest

from antiphon.core.tempo.phases import Phases
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.sdk.tempo.beat_stamps import BeatStamps

BAR_MS = 32_000


@pytest.mark.req("B18", "B27")
def test_a_beat_follows_from_the_time_and_the_policy():
    stamps = BeatStamps(TempoPolicy())
    found = [stamps.at(BAR_MS + beat * 4_000 + 500) for beat in range(8)]
    assert [stamp.beat for stamp in found] == [1, 2, 3, 4, 5, 6, 7, 8]
    phases = ["plan"] * 2 + ["work"] * 4 + ["review"] * 2
    assert [stamp.phase for stamp in found] == phases


@pytest.mark.req("B18")
def test_another_policy_has_other_beats():
    policy = TempoPolicy(initial_bpm=20, bar_len_beats=4, phases=Phases(plan=1, work=1, review=2))
    stamp = BeatStamps(policy).at(3_000 * 6)
    assert (stamp.beat, stamp.phase) == (3, "review")
