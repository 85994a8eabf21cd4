"""The ticks of a cron expression in a time zone, as instants.

`cronsim` follows Debian's cron, daylight saving included: what is due in an hour that is skipped
runs once right after it, what is due in an hour that comes twice runs once, and what runs every
hour or more often runs in every real hour. Three things are added. A walk begins at an instant, not
at a time of day; ticks that are not after it are dropped, which `cronsim` returns when it is
started inside a repeated hour; and `@daily` and its kin are written out.

The core cannot do this: which ticks there are depends on time zone data, which changes. Ticks are
whole seconds, in milliseconds since 1970.
"""

from __future__ import annotations

import difflib
import zoneinfo
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from cronsim import CronSim, CronSimError

from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS: Final = (
    "minute 0-59, hour 0-23, day of month 1-31 or L, month 1-12 or JAN-DEC, day of week 0-7 or"
    " SUN-SAT; each may be *, a list 1,15, a range 1-5 or a step */10; a sixth field in front is"
    " the second"
)
_FIRST_LOOK_BACK_S: Final = 64
_WIDER: Final = 24
"""How much further each look back goes until enough ticks are found."""


class CronTicks:
    """One expression in one zone."""

    def __init__(self, expression: str, zone: str) -> None:
        """`Malformed` if either is not valid."""
        self.zone = zone_of(zone)
        self._plain = NAMED.get(expression.strip().lower(), expression)
        try:
            CronSim(self._plain, datetime.fromtimestamp(0, self.zone))
        except (CronSimError, AssertionError, ValueError) as problem:
            raise Malformed(
                f"{expression!r} is not a cron expression: {_in_words(problem)}",
                reason="cron",
                hint=f"write five fields such as '0 3 * * *' (every day at 03:00): {FIELDS}."
                f" Or one of {', '.join(NAMED)}",
            ) from problem

    def after(self, after_ms: int) -> Iterator[int]:
        """Every tick after this time, in order; none once fifty years have none."""
        try:
            start = datetime.fromtimestamp(after_ms // 1000, self.zone)
            for tick in CronSim(self._plain, start):
                tick_ms = round(tick.timestamp()) * 1000
                if tick_ms > after_ms:
                    yield tick_ms
                    after_ms = tick_ms
        except (OverflowError, ValueError, OSError):
            return  # the end of the calendar

    def next(self, after_ms: int) -> int | None:
        """The first tick after this time."""
        return next(self.after(after_ms), None)

    def has(self, tick_ms: int) -> bool:
        """Whether this is one of its ticks."""
        return self.next(tick_ms - 1) == tick_ms

    def due(self, after_ms: int, upto_ms: int, *, most: int) -> list[int]:
        """The newest ticks after one time and up to another, oldest first.

        The walk begins near the end and goes further back only if it found too few: a plan may
        have waited for months.
        """
        look_back_ms = _FIRST_LOOK_BACK_S * 1000
        while True:
            start_ms = max(after_ms, upto_ms - look_back_ms)
            found = [*_until(self.after(start_ms), upto_ms)]
            if len(found) >= most or start_ms == after_ms:
                return found[-most:]
            look_back_ms *= _WIDER

    def first(self, count: int, *, after_ms: int) -> list[datetime]:
        """The next few ticks, as times in the zone: for people."""
        some = islice(self.after(after_ms), count)
        return [datetime.fromtimestamp(tick / 1000, self.zone) for tick in some]


def _until(ticks: Iterator[int], upto_ms: int) -> Iterator[int]:
    for tick in ticks:
        if tick > upto_ms:
            return
        yield tick


def zone_of(name: str) -> zoneinfo.ZoneInfo:
    """A time zone by its name, or `Malformed`."""
    if name in _names():
        with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            return zoneinfo.ZoneInfo(name)
    raise Malformed(f"{name!r} is not a time zone", reason="zone")


def zones_like(name: str) -> str:
    """For a person who wrote a name that is no time zone: similar names. Takes long."""
    ends = {one.rpartition("/")[2].lower(): one for one in sorted(_names())}
    near = difflib.get_close_matches(name.rpartition("/")[2].lower(), ends, n=3)
    if near:
        return f"did you mean {', '.join(ends[one] for one in near)}?"
    return "write a name such as Europe/Berlin, America/New_York or UTC"


@lru_cache(1)
def _names() -> frozenset[str]:
    """All there are: a plan may name any number of others, and none of them is looked for."""
    return frozenset(zoneinfo.available_timezones())


def _in_words(problem: Exception) -> str:
    text = str(problem) or "it cannot be read"
    return text[0].lower() + text[1:]
