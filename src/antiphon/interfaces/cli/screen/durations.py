"""Times as people type them (`2d`, `4beats`, `friday`, `2026-11-20T18:00Z`) and as we print them.

A duration may be in beats, wherever one is typed: the mesh's tempo says how long a beat is.

A day, by name or by date, means its end on this machine's clock: a permission until Friday
includes Friday. A weekday is never today: on a Friday, `friday` is a week away.
"""

from __future__ import annotations

import math
import re
import time
from datetime import UTC, date, datetime, timedelta
from typing import Final

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.sdk import durations
from antiphon.sdk.durations import FORMS, MAX_S, UNITS_S

NEVER: Final = "never"
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_PRINTED_MS: Final = {unit: round(UNITS_S[unit] * 1000) for unit in ("d", "h", "m", "s")}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_BEATS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*beats?", re.ASCII | re.IGNORECASE)
_SHORT_WEEKDAY: Final = 3
_LEAST_S: Final = 0.001
_FORMS: Final = f"{FORMS}; or 4beats"
_MOMENT: Final = "write the date, the time and the zone: 2026-11-16T03:00+01:00, or Z for UTC"
_HOW: Final = "write 2d, 12h, 90m, 4beats, friday, 2026-11-20, 2026-11-20T18:00Z or never"


def until_s(text: str, now_s: float) -> int | None:
    """The last second of a time that a person typed; None for `never`. The past is an error."""
    word = text.strip().lower()
    if word == NEVER:
        return None
    end_s = _until(word, now_s)
    if end_s is None:
        raise WrongUsage(f"{text!r} is not a time", hint=_HOW)
    if end_s <= now_s:
        raise WrongUsage(
            f"{text!r} is in the past: that was {_day_and_clock(end_s, now_s)}", hint=_HOW
        )
    if end_s - now_s > MAX_S:
        raise WrongUsage(f"{text!r} is more than a hundred years away", hint="write never")
    return end_s


def duration_s(text: str) -> int:
    """A duration that a person typed with its unit, in whole seconds."""
    length_s = span_s(text)
    if length_s is None or not 1 <= length_s <= MAX_S:
        raise WrongUsage(f"{text!r} is not a duration", hint=_FORMS)
    return int(length_s)


def seconds(given: str | float) -> float:
    """A duration that a person typed, in seconds; a number without a unit is seconds."""
    if isinstance(given, str) and _BEATS.fullmatch(given.strip()):
        given = span_s(given) or 0.0
    try:
        return durations.seconds(given)
    except Misconfigured as refused:
        raise WrongUsage(refused.message, hint=_FORMS) from refused


def some_seconds(given: str | float) -> float:
    """The same for an option that zero makes no sense for: at least a millisecond."""
    length_s = seconds(given)
    if length_s < _LEAST_S:
        raise WrongUsage(f"{str(given)!r} is too short", hint=_FORMS)
    return length_s


def whole_seconds(given: str | float) -> int:
    """A duration in whole seconds, rounded up."""
    return math.ceil(some_seconds(given))


def zoned_time(text: str) -> datetime:
    """A point in time with its zone.

    Without a zone it would mean another moment on every machine, and twice a year two or none.
    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise WrongUsage(f"{text!r} is not a point in time", hint=_MOMENT) from None
    if at.tzinfo is None:
        raise WrongUsage(f"{text!r} has no time zone", hint=_MOMENT)
    return at


def _until(word: str, now_s: float) -> int | None:
    ahead_s = span_s(word)
    if ahead_s is not None:
        return int(now_s) + int(ahead_s)
    try:
        if _DATE.fullmatch(word):
            return _end_of(date.fromisoformat(word))
        if _TIME.fullmatch(word.upper()):
            # Without a zone it is this machine's clock.
            return int(datetime.fromisoformat(word.upper()).timestamp())
    except (ValueError, OverflowError):
        return None
    days = [day for day in WEEKDAYS if word in {day, day[:_SHORT_WEEKDAY]}]
    if not days:
        return None
    today = datetime.fromtimestamp(now_s, UTC).astimezone().date()
    ahead = (WEEKDAYS.index(days[0]) - today.weekday()) % len(WEEKDAYS) or len(WEEKDAYS)
    return _end_of(today + timedelta(days=ahead))


def _end_of(day: date) -> int:
    """The last second of a day here, even if daylight saving time changes before it."""
    return int(time.mktime((day.year, day.month, day.day, 23, 59, 59, 0, 0, -1)))


def span_s(text: str) -> float | None:
    """A duration with its unit, in seconds; None if the text is not one."""
    found = _BEATS.fullmatch(text.strip())
    return durations.span_s(text) if found is None else float(found[1]) * beat_s()


def beat_s() -> float:
    """How long a beat of this mesh takes now, in seconds: asks the mesh."""
    from antiphon.interfaces.cli.screen import command_loop
    from antiphon.interfaces.cli.screen.options import open_mesh, typed_home

    async def ask() -> float:
        async with open_mesh(typed_home()) as mesh:
            return await mesh.tempo.beat_s()

    return command_loop.run(ask())


def in_beats(text: str) -> int | None:
    """A duration that is typed where beats are counted, in whole beats; None if it is not one."""
    found = _BEATS.fullmatch(text.strip())
    if found is not None:
        return math.ceil(float(found[1]))
    length_s = span_s(text)
    return None if length_s is None else max(math.ceil(length_s / beat_s() - _LEAST_S), 1)


def span_ms(text: str) -> int | None:
    """A duration with its unit, in milliseconds; None if the text is not one."""
    length_s = span_s(text)
    return None if length_s is None else round(length_s * 1000)


def span_words(length_ms: int) -> str:
    """A duration as it could be typed: in the largest unit that divides it."""
    for unit, unit_ms in _PRINTED_MS.items():
        if length_ms and length_ms % unit_ms == 0:
            return f"{length_ms // unit_ms}{unit}"
    return f"{length_ms}ms"


# --- as they are printed ----------------------------------------------------------------------


def in_words(end_s: int | None, now_s: float) -> str:
    """Until when something is valid: the moment, and how far it is from now."""
    if end_s is None:
        return "without end"
    return f"until {_day_and_clock(end_s, now_s)}, {_distance(end_s - now_s)}"


def beginning_in_words(begin_s: int, now_s: float) -> str:
    """From when something is valid, likewise."""
    return f"from {_day_and_clock(begin_s, now_s)}, {_distance(begin_s - now_s)}"


def wait_in_words(not_before_ms: int, now_s: float) -> str:
    """What a job that waits for a time waits for, as the end of a sentence."""
    if not_before_ms / 1000 > now_s:
        return f"waits {in_words(not_before_ms // 1000, now_s)}"
    return "waits for a full node to offer it: its time has come"


def _day_and_clock(at_s: float, now_s: float) -> str:
    """A moment on the local clock, with as much of its date as is needed."""
    at, now = time.localtime(at_s), time.localtime(now_s)
    if (at.tm_year, at.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("%H:%M", at)
    if 0 < at_s - now_s < 6 * 86_400:
        return time.strftime("%a %H:%M", at)
    day = f"{time.strftime('%a', at)} {at.tm_mday} {time.strftime('%b', at)}"
    year = "" if at.tm_year == now.tm_year else f" {at.tm_year}"
    return f"{day}{year} {time.strftime('%H:%M', at)}"


def _distance(seconds: float) -> str:
    length = abs(seconds)
    words = "a moment"
    for unit, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        # A unit is used from about two of it on: "in 36 hours" says more than "in 1 day".
        if length >= 1.99 * unit_s:
            words = f"{length / unit_s:.0f} {unit}s"
            break
    return f"in {words}" if seconds >= 0 else f"{words} ago"
