"""Durations as programs and people write them: `90`, `1.5`, a timedelta, `"15m"`, `"PT15M"`.

A number without a unit is seconds. `Misconfigured` refuses everything else, with examples. The
command line reads its options with the same functions, so that both accept the same forms.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from antiphon.errors import Misconfigured

MAX_S: Final = 100 * 366 * 86_400
"""A longer duration is a typing mistake."""
FORMS: Final = "write seconds (90, 1.5) or a unit: 90s, 15m, 2h, 1d, 1h30m, PT15M"
UNITS_S: Final = {
    "w": 7 * 86_400.0,
    "d": 86_400.0,
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 0.001,
}
_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
_SPAN: Final = re.compile(
    r"\s*".join(
        rf"(?:(\d{{1,15}}(?:\.\d{{1,9}})?)\s*{unit})?"
        for unit in ("w", "d", "h", "m(?:in)?(?!s)", "s", "ms")
    ),
    re.ASCII,
)


def seconds(value: float | timedelta | str) -> float:
    """A duration in seconds, zero included; `Misconfigured` if the value is not one."""
    length_s = _seconds(value)
    if length_s is None or not 0 <= length_s <= MAX_S:  # not-a-number is in no range
        raise Misconfigured(f"{_shown(value)} is not a duration", hint=FORMS)
    return length_s


def _seconds(value: float | timedelta | str) -> float | None:
    match value:
        case timedelta():
            return value.total_seconds()
        case str():
            text = value.strip()
            return float(text) if _NUMBER.fullmatch(text) else span_s(text)
        case int() | float() if not isinstance(value, bool):
            return float(value) if -1 <= value <= MAX_S else math.inf
        case _:
            return None


def _shown(value: object) -> str:
    return str(value) if isinstance(value, timedelta) else repr(value)


def span_s(text: str) -> float | None:
    """A duration with units, in seconds, whatever its size; None if the text is not one.

    The units come in order and once each: `1h30m`, not `30m1h`.
    """
    text = text.strip()
    if text[:1] in ("P", "p"):
        return _iso_s(text.upper())
    found = _SPAN.fullmatch(text.lower())
    if found is None or not text:
        return None
    parts = zip(found.groups(), UNITS_S.values(), strict=True)
    return math.fsum(float(count) * unit_s for count, unit_s in parts if count)


def _iso_s(text: str) -> float | None:
    # Loaded only for the rare form: the manifest's module brings the codec with it.
    from antiphon.core import manifest
    from antiphon.errors import Malformed

    try:
        return float(manifest.seconds(text))
    except Malformed:
        return None
