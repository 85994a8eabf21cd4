"""When something that is addressed begins, and what belongs to an address."""

import pytest

from antiphon.core.tempo.addresses import parse_address
from antiphon.core.tempo.meter import Meter
from antiphon.core.tempo.phases import Phases
from antiphon.errors import Malformed

METER, PHASES = Meter(), Phases()
BAR_MS = METER.bar_ms


@pytest.mark.req("B23")
@pytest.mark.parametrize(
    "text, now_ms, begins_ms",
    [
        ("job", 1_500, 1_500),
        ("job;beats=^^4", 1_500, 16_000),
        ("job;phase=plan", 1_500, 1_500),
        ("job;phase=work", 1_500, 8_000),
        ("job;phase=plan", 9_000, BAR_MS),
        ("job;beats=^^4;phase=plan", 1_500, BAR_MS),
        ("job;beats=^^2;phase=work", 1_500, 8_000),
        ("job;seconds=^^30", 1_500, 31_500),
        ("job;seconds=^^4;phase=work", 1_500, 8_000),
    ],
)
def test_what_is_submitted_begins_at_its_beat_and_in_its_phase(text, now_ms, begins_ms):
    address = parse_address(text)
    assert address.what == "job"
    assert address.begins_ms(METER, PHASES, now_ms) == begins_ms


@pytest.mark.req("B23")
def test_what_has_happened_belongs_to_a_beat_and_a_phase():
    now_ms = 100_000
    two_ago = parse_address("job;beats=~~2")
    happened = [
        at_ms
        for at_ms in range(0, 100_001, 4_000)
        if two_ago.includes(at_ms, "plan", METER, now_ms)
    ]
    assert happened[-1] == 92_000
    ten_s_ago = parse_address("job;seconds=~~10")
    assert ten_s_ago.includes(90_000, "plan", METER, now_ms)
    assert not ten_s_ago.includes(90_001, "plan", METER, now_ms)
    review = parse_address("job;phase=review")
    assert review.includes(BAR_MS - 1, "review", METER, now_ms)
    assert not review.includes(BAR_MS, "plan", METER, now_ms)


@pytest.mark.req("B23")
def test_neither_submits_into_the_past_nor_shows_the_future():
    with pytest.raises(Malformed, match="past"):
        parse_address("job;beats=~~2").begins_ms(METER, PHASES, 0)
    with pytest.raises(Malformed, match="past"):
        parse_address("job;seconds=~~2").begins_ms(METER, PHASES, 0)
    with pytest.raises(Malformed, match="both"):
        parse_address("job;seconds=^^2;beats=^^1")
    with pytest.raises(Malformed, match="future"):
        parse_address("job;beats=^^2").includes(0, "plan", METER, 0)
