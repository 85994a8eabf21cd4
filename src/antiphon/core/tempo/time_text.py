"""Times and timestamps as frames and claims write them: ISO-8601 in UTC, with milliseconds.

A timestamp of the hybrid clock is that time, `+` and its counter: `2025-09-03T02:12:27.183Z+17`.
The older form with a bar and a beat in between, `…Z+1287:3+17`, can be read; it is not written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from antiphon.core.clock.hlc import MAX_LOGICAL, MAX_WALL, Hlc
from antiphon.errors import Malformed

_DAY_MS: Final = 86_400_000
_TIME: Final = re.compile(r"(\d{4,5})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.(\d{3})Z", re.ASCII)
_HLC: Final = re.compile(r"([^+]{24,25})(?:\+(\d{1,15}):(\d{1,4}))?\+(\d{1,5})", re.ASCII)
_MARCH: Final = 3
_JULIAN_SHIFT: Final = 719_468
"""Days from 1 March of the year 0 to the Unix epoch."""


def time_text(ms: int) -> str:
    """A wall time as text."""
    days, rest = divmod(ms, _DAY_MS)
    year, month, day = _civil(days)
    seconds, ms = divmod(rest, 1000)
    hours, minutes = divmod(seconds // 60, 60)
    clock = f"{hours:02}:{minutes:02}:{seconds % 60:02}.{ms:03}"
    return f"{year:04}-{month:02}-{day:02}T{clock}Z"


@lru_cache(maxsize=256)
def parse_time(text: str) -> int:
    """The wall time in a text; `Malformed` if it has another form or is no date."""
    found = _TIME.fullmatch(text)
    if found is not None:
        year, month, day, hours, minutes, seconds, ms = map(int, found.groups())
        days = _days(year, month, day)
        at = days * _DAY_MS + ((hours * 60 + minutes) * 60 + seconds) * 1000 + ms
        if 0 <= at <= MAX_WALL and time_text(at) == text:
            return at
    raise Malformed(f"{text!r} is not a time such as 2025-09-03T02:12:27.183Z", reason="time")


def hlc_text(at: tuple[int, int]) -> str:
    """A timestamp as text."""
    return f"{time_text(at[0])}+{at[1]}"


def parse_hlc(text: str) -> Hlc:
    """The timestamp in a text of either form."""
    found = _HLC.fullmatch(text)
    if found is not None and int(found[4]) <= MAX_LOGICAL:
        return Hlc(parse_time(found[1]), int(found[4]))
    raise Malformed(f"{text!r} is not a timestamp such as 2025-09-03T02:12:27.183Z+17")


def _days(year: int, month: int, day: int) -> int:
    """Days since the Unix epoch; years are counted from March, so that leap days come last."""
    year -= month < _MARCH
    from_march = (month - _MARCH) % 12
    of_year = (153 * from_march + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + of_year - _JULIAN_SHIFT


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day, that many days after the Unix epoch."""
    era, of_era = divmod(days + _JULIAN_SHIFT, 146_097)
    of_era_year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * of_era_year + of_era_year // 4 - of_era_year // 100)
    from_march = (5 * of_year + 2) // 153
    month = (from_march + 2) % 12 + 1
    year = era * 400 + of_era_year + (month < _MARCH)
    return year, month, of_year - (153 * from_march + 2) // 5 + 1
