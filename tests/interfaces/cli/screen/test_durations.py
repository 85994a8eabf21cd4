"""Times as people type them on the command line."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.interfaces.cli.screen.durations import (
    WEEKDAYS,
    beginning_in_words,
    duration_s,
    in_beats,
    in_words,
    seconds,
    span_ms,
    span_words,
    until_s,
    wait_in_words,
    whole_seconds,
    zoned_time,
)
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.shared.job_options import parse_budget

WEDNESDAY = 1_794_999_600.0
"""2026-11-18 at 12:00 in Berlin, 11:00 UTC."""
HOUR, DAY = 3_600, 86_400


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    """A zone with an offset and with summer time, spelled out: no machine has to know it."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(text):
    import calendar

    return calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S"))


@pytest.mark.parametrize(
    "text, end_s",
    [
        ("90s", WEDNESDAY + 90),
        ("90m", WEDNESDAY + 90 * 60),
        ("90min", WEDNESDAY + 90 * 60),
        ("12h", WEDNESDAY + 12 * HOUR),
        ("1h30m", WEDNESDAY + 90 * 60),
        ("2d", WEDNESDAY + 2 * DAY),
        (" 2D ", WEDNESDAY + 2 * DAY),
        ("1w", WEDNESDAY + 7 * DAY),
        ("friday", utc("2026-11-20 22:59:59")),
        ("Fri", utc("2026-11-20 22:59:59")),
        ("thursday", utc("2026-11-19 22:59:59")),
        ("tuesday", utc("2026-11-24 22:59:59")),
        ("wednesday", utc("2026-11-25 22:59:59")),
        ("2026-11-18", utc("2026-11-18 22:59:59")),
        ("2026-11-20", utc("2026-11-20 22:59:59")),
        ("2027-07-01", utc("2027-07-01 21:59:59")),
        ("2026-11-20T18:00Z", utc("2026-11-20 18:00:00")),
        ("2026-11-20t18:00z", utc("2026-11-20 18:00:00")),
        ("2026-11-20T18:00:30+02:00", utc("2026-11-20 16:00:30")),
        ("2026-11-20T18:00", utc("2026-11-20 17:00:00")),
        ("2026-11-20 18:00", utc("2026-11-20 17:00:00")),
        ("never", None),
    ],
)
def test_a_time_is_understood_as_a_person_means_it(text, end_s):
    assert until_s(text, WEDNESDAY) == end_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2",
        "2x",
        "d",
        "-2d",
        "soon",
        "2026-13-01",
        "2026-11-31",
        "2026-11-20T25:00",
        "fr",
    ],
)
def test_what_cannot_be_understood_is_refused_with_examples(text):
    with pytest.raises(WrongUsage) as refused:
        until_s(text, WEDNESDAY)
    assert "2d" in refused.value.hint


@pytest.mark.parametrize("text", ["2026-11-17", "2020-01-01", "2026-11-18T10:59Z", "0s", "1ms"])
def test_the_past_is_refused_with_a_sentence(text):
    with pytest.raises(WrongUsage, match="in the past"):
        until_s(text, WEDNESDAY)


@pytest.mark.parametrize("text", ["9999-12-31", "999999999999999w", "40000d"])
def test_what_nobody_lives_to_see_is_refused(text):
    with pytest.raises(WrongUsage, match="hundred years"):
        until_s(text, WEDNESDAY)


def test_a_length_alone_is_told_in_whole_seconds():
    assert [duration_s(text) for text in ("15m", "90s", "2d", "1500ms")] == [900, 90, 2 * DAY, 1]


@pytest.mark.parametrize("text", ["", "0s", "500ms", "friday", "never", "-1h", "999999999999999w"])
def test_what_is_no_length_of_time_is_refused(text):
    with pytest.raises(WrongUsage, match="is not a duration"):
        duration_s(text)


@given(st.floats(0, 2e9), st.sampled_from(WEEKDAYS))
def test_a_weekday_is_the_end_of_the_next_such_day(now_s, day):
    until = time.localtime(until_s(day, now_s))
    assert (until.tm_hour, until.tm_min, until.tm_sec) == (23, 59, 59)
    assert WEEKDAYS[until.tm_wday] == day
    ahead = time.mktime(until) - now_s
    assert 0 < ahead <= 8 * DAY + HOUR
    assert until.tm_yday != time.localtime(now_s).tm_yday


@given(st.integers(1, 10**13))
def test_a_length_of_time_comes_back_as_it_was_told(length_ms):
    assert span_ms(span_words(length_ms)) == length_ms


@pytest.mark.parametrize(
    "length_ms, words",
    [
        (1_500, "1500ms"),
        (30_000, "30s"),
        (120_000, "2m"),
        (3_600_000, "1h"),
        (7 * DAY * 1000, "7d"),
    ],
)
def test_a_length_of_time_is_told_in_its_largest_unit(length_ms, words):
    assert span_words(length_ms) == words


@pytest.mark.parametrize(
    "ahead_s, words",
    [
        (None, "without end"),
        (1, "until 12:00, in a moment"),
        (90, "until 12:01, in 90 seconds"),
        (30 * 60, "until 12:30, in 30 minutes"),
        (11 * HOUR, "until 23:00, in 11 hours"),
        (36 * HOUR, "until Fri 00:00, in 36 hours"),
        (2 * DAY + 6 * HOUR, "until Fri 18:00, in 2 days"),
        (12 * DAY, "until Mon 30 Nov 12:00, in 12 days"),
        (60 * DAY, "until Sun 17 Jan 2027 12:00, in 60 days"),
        (-2 * HOUR, "until 10:00, 2 hours ago"),
        (-3 * DAY, "until Sun 15 Nov 12:00, 3 days ago"),
    ],
)
def test_an_end_is_told_by_the_clock_and_by_its_distance(ahead_s, words):
    end_s = None if ahead_s is None else int(WEDNESDAY) + ahead_s
    assert in_words(end_s, WEDNESDAY) == words


def test_a_beginning_is_told_likewise():
    assert beginning_in_words(int(WEDNESDAY) + DAY, WEDNESDAY) == "from Thu 12:00, in 24 hours"


@pytest.mark.parametrize(
    "text, length_s",
    [("15m", 900), ("90", 90), ("1.5", 1.5), ("500ms", 0.5), ("2h", 7200), (" 0 ", 0), (0.4, 0.4)],
)
def test_a_length_may_have_its_unit_and_is_in_seconds_without(text, length_s):
    assert seconds(text) == length_s


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e9", "15 x", "999999999999"])
def test_what_is_no_length_is_refused_with_examples(text):
    with pytest.raises(WrongUsage, match="is not a duration") as refused:
        seconds(text)
    assert "15m" in refused.value.hint


@pytest.mark.parametrize(
    "text, at",
    [
        ("2026-11-16T03:00+01:00", "2026-11-16 02:00:00"),
        ("2026-11-16 03:00:30Z", "2026-11-16 03:00:30"),
        (" 2026-11-16T03:00-05:30 ", "2026-11-16 08:30:00"),
    ],
)
def test_a_point_in_time_has_its_zone(text, at):
    assert zoned_time(text).timestamp() == utc(at)


@pytest.mark.parametrize("text", ["2026-11-16T03:00", "2026-11-16", "20261116"])
def test_a_point_in_time_without_a_zone_is_refused_and_told_how_to_write_it(text):
    with pytest.raises(WrongUsage, match="has no time zone") as refused:
        zoned_time(text)
    assert "+01:00" in refused.value.hint


@pytest.mark.parametrize("text", ["", "friday", "2d", "03:00Z", "2026-13-01T00:00Z", "1763158030"])
def test_what_is_no_point_in_time_is_refused_with_an_example(text):
    with pytest.raises(WrongUsage, match="is not a point in time") as refused:
        zoned_time(text)
    assert "+01:00" in refused.value.hint


@pytest.mark.parametrize(
    "ahead_s, words",
    [
        (90, "waits until 12:01, in 90 seconds"),
        (36 * HOUR, "waits until Fri 00:00, in 36 hours"),
        (0, "waits for a full node to offer it: its time has come"),
    ],
)
def test_a_delayed_job_says_until_when_it_waits(ahead_s, words):
    assert wait_in_words(round((WEDNESDAY + ahead_s) * 1000), WEDNESDAY) == words


def test_where_whole_seconds_count_a_part_is_one():
    assert [whole_seconds(text) for text in ("15m", "1", "500ms", "1.2")] == [900, 1, 1, 2]
    with pytest.raises(WrongUsage, match="too short"):
        whole_seconds("0s")


@pytest.fixture
def four_seconds_a_beat(monkeypatch):
    monkeypatch.setattr("antiphon.interfaces.cli.screen.durations.beat_s", lambda: 4.0)


@pytest.mark.usefixtures("four_seconds_a_beat")
def test_every_duration_may_be_in_beats():
    assert seconds("4beats") == seconds(" 4 Beats ") == 16
    assert seconds("0.5beats") == 2
    assert whole_seconds("1beat") == duration_s("1 beat") == 4
    assert span_ms("8beats") == 32_000
    assert until_s("900beats", WEDNESDAY) == WEDNESDAY + HOUR
    for wrong in ("beats", "-1beats", "4beat s", "4bars"):
        with pytest.raises(WrongUsage):
            seconds(wrong)


@pytest.mark.usefixtures("four_seconds_a_beat")
@pytest.mark.parametrize(
    "typed, beats", [("8s", 2), ("9s", 3), ("1m", 15), ("1ms", 1), ("3beats", 3), ("bar+2", None)]
)
def test_where_beats_are_counted_seconds_may_be_typed(typed, beats):
    assert in_beats(typed) == beats
    assert parse_budget([f"phase_caps.work={typed}"]) == {"phase_caps": {"work": beats or typed}}
    assert parse_budget([f"charge_to={typed}"]) == {"charge_to": typed}
