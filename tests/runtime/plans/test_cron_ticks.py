"""Cron expressions in time zones: daylight saving both ways, and restarts at any moment."""

import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from antiphon.errors import Malformed
from antiphon.runtime.plans import cron_ticks
from antiphon.runtime.plans.cron_ticks import NAMED, CronTicks
from antiphon.sdk.plans.triggers import cron

pytestmark = pytest.mark.req("P13")
BERLIN = "Europe/Berlin"
SPRING = datetime(2027, 3, 28, tzinfo=ZoneInfo(BERLIN))
"""At 02:00 it is 03:00."""
FALL = datetime(2027, 10, 31, tzinfo=ZoneInfo(BERLIN))
"""At 03:00 it is 02:00 again."""


def ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)


def ticks(expression: str, start: datetime, *, hours: float, zone: str = BERLIN) -> list[str]:
    """In UTC, from a time on."""
    found = CronTicks(expression, zone).after(ms(start))
    until = ms(start) + hours * 3_600_000
    some = takewhile(lambda tick: tick <= until, found)
    return [datetime.fromtimestamp(tick / 1000, UTC).strftime("%d %H:%M:%S") for tick in some]


def test_what_is_due_in_the_skipped_hour_runs_once_right_after_it():
    assert ticks("30 2 * * *", SPRING, hours=40) == ["28 01:00:00", "29 00:30:00"]


def test_what_is_due_in_the_repeated_hour_runs_once():
    assert ticks("30 2 * * *", FALL, hours=40) == ["31 00:30:00", "01 01:30:00"]


@pytest.mark.parametrize("day", [SPRING, FALL], ids=["spring", "fall"])
def test_what_runs_every_half_hour_does_so_in_every_real_hour(day):
    found = list(islice(CronTicks("*/30 * * * *", BERLIN).after(ms(day)), 12))
    assert {b - a for a, b in pairwise(found)} == {1_800_000}


@pytest.mark.parametrize(
    "expression", ["30 2 * * *", "0 * * * *", "*/20 * * * *", "15,45 1-3 * * *", "*/40 5 2 * * *"]
)
@pytest.mark.parametrize("day", [SPRING, FALL], ids=["spring", "fall"])
def test_whoever_starts_anywhere_around_a_change_finds_the_same_ticks(day, expression):
    start = ms(day) - 3_600_000
    cron = CronTicks(expression, BERLIN)
    end = start + 30 * 3_600_000
    walk = list(takewhile(lambda tick: tick <= end, cron.after(start)))
    for minute in range(6 * 60):
        at = start + minute * 60_000 + 17
        assert cron.next(at) == next(tick for tick in walk if tick > at), minute
    assert all(cron.has(tick) for tick in walk)
    assert not any(cron.has(tick + 1_000) for tick in walk if tick + 1_000 not in walk)


def test_seconds_may_come_first():
    assert ticks("*/20 * * * * *", FALL, hours=1 / 60) == [
        "30 22:00:20", "30 22:00:40", "30 22:01:00"
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_names_stand_for_expressions(name):
    assert CronTicks(name, "UTC").next(0) == CronTicks(NAMED[name], "UTC").next(0)


@pytest.mark.parametrize("most", [1, 3, 1_000])
@pytest.mark.parametrize("expression", ["*/7 * * * *", "0 3 * * *", "0 0 1 2 *", "* * 5 * * *"])
@pytest.mark.parametrize("days", [0, 1, 20])
def test_of_what_is_due_the_newest_are_found(expression, days, most):
    cron = CronTicks(expression, BERLIN)
    upto = ms(FALL + timedelta(hours=7))
    after = upto - days * 86_400_000
    walk = list(takewhile(lambda tick: tick <= upto, cron.after(after)))
    assert cron.due(after, upto, most=most) == walk[-most:]


@pytest.mark.parametrize(
    "expression", ["", "0 3 * *", "61 * * * *", "0 25 * * *", "a b c d e", "@reboot", "0 0 31 2 *",
                   "*/0 * * * *", "1-L * * * *", "0 0 L/x * *", "٣ * * * *"],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_what_a_field_may_hold(expression):
    with pytest.raises(Malformed) as caught:
        CronTicks(expression, "UTC")
    assert repr(expression) in caught.value.message
    assert "hour 0-23" in caught.value.hint


@pytest.mark.parametrize(
    "zone", ["", "Berlin", "Europe", "../etc/passwd", "/etc/localtime", "Europe/Berlinn", "x" * 300]
)
def test_what_is_no_zone_is_refused(zone):
    with pytest.raises(Malformed) as caught:
        CronTicks("0 3 * * *", zone)
    assert "is not a time zone" in caught.value.message
    with pytest.raises(Malformed, match="is not a time zone") as caught:
        cron("0 3 * * *", zone=zone)
    is_near = zone in ("Berlin", "Europe/Berlinn")
    assert ("did you mean Europe/Berlin" in caught.value.hint) == is_near


@pytest.mark.parametrize("at_ms", [2**48 - 1, 253_402_300_799_000, 2**53 - 1, 0])
@pytest.mark.parametrize("zone", [BERLIN, "Pacific/Kiritimati", "UTC"])
def test_at_the_ends_of_the_calendar_there_are_no_more_ticks_and_no_errors(zone, at_ms):
    found = CronTicks("0 3 * * *", zone)
    assert found.next(at_ms) is None or at_ms == 0
    assert found.has(at_ms) is False
    assert found.due(at_ms, at_ms, most=3) == []


def test_a_zone_that_does_not_exist_is_not_looked_for(monkeypatch):
    """A plan may name any number of them: no files are opened, and no names compared."""
    with pytest.raises(Malformed, match="is not a time zone"):
        CronTicks("0 3 * * *", "Mars/Base0")  # the names of all zones are known now
    looks = []
    monkeypatch.setattr(zoneinfo, "ZoneInfo", looks.append)
    monkeypatch.setattr(cron_ticks.difflib, "get_close_matches", looks.append)
    for number in range(3):
        with pytest.raises(Malformed, match="is not a time zone"):
            CronTicks("0 3 * * *", f"Mars/Base{number}")
    assert looks == []
