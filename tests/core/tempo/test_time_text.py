"""Times and timestamps as text, and back."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.core.tempo.time_text import hlc_text, parse_hlc, parse_time, time_text
from antiphon.errors import Malformed

WALLS = st.integers(0, 2**47)


@pytest.mark.req("B28")
@given(WALLS)
@example(951_782_400_000)  # 29 February 2000
@example(4_107_542_400_000)  # 1 March 2100, not a leap year
@example(253_402_300_799_999)  # the last millisecond of the year 9999
def test_a_time_is_read_back_as_it_was_and_agrees_with_the_calendar(wall_ms):
    text = time_text(wall_ms)
    assert parse_time(text) == wall_ms
    if wall_ms < 253_402_300_800_000:
        there = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=wall_ms)
        assert text == there.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.req("B28")
@given(WALLS, st.integers(0, 65_535))
def test_a_timestamp_is_read_back_without_loss(wall_ms, logical):
    assert parse_hlc(hlc_text((wall_ms, logical))) == (wall_ms, logical)


@pytest.mark.req("B28")
def test_the_older_form_with_bar_and_beat_is_read():
    assert parse_hlc("2025-09-03T02:12:27.183Z+1287:3+17") == parse_hlc(
        "2025-09-03T02:12:27.183Z+17"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-09-03T02:12:27Z+1",
        "2025-02-30T00:00:00.000Z+1",
        "2025-09-03T24:00:00.000Z+1",
        "2025-09-03T02:12:27.183Z",
        "2025-09-03T02:12:27.183Z+65536",
        "2025-09-03T02:12:27.183Z+-1",
        "٢٠٢٥-09-03T02:12:27.183Z+1",
    ],
)
def test_what_is_no_timestamp_is_refused(text):
    with pytest.raises(Malformed):
        parse_hlc(text)
