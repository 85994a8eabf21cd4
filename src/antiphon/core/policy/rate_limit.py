"""Rate limits: how many jobs may start in a period.

A token bucket. It fills at the rate and holds a second's worth (at least one token), so at most
`rate · t` and one bucketful more start in `t` seconds.
"""

from __future__ import annotations

import math
import re
from typing import Final

from msgspec import Struct

from antiphon.errors import Misconfigured

_SHAPE: Final = re.compile(r"(\d{1,6})\s*/\s*(\d{0,5})(s|m|h)", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


class Rate(Struct, frozen=True):
    """At most `count` in `per_s` seconds."""

    count: int
    per_s: float

    @property
    def per_second(self) -> float:
        """Tokens per second."""
        return self.count / self.per_s

    @property
    def burst(self) -> int:
        """How many may start at once after a pause."""
        return max(1, math.ceil(self.per_second))


def parse_rate(text: str) -> Rate:
    """`10/s`, `100/m`, `5/10s`: at most this many starts per period."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0 or found[2] == "0":
        raise Misconfigured(
            f"{text!r} is not a rate", hint="a number and a time: 10/s, 100/m, 5/10s, 20/h"
        )
    return Rate(int(found[1]), int(found[2] or 1) * _SECONDS[found[3]])


class Bucket:
    """The tokens of one rate. Times are from any clock that does not go back."""

    def __init__(self, rate: Rate) -> None:
        """Begin full."""
        self.rate = rate
        self._tokens = float(rate.burst)
        self._at_s = -math.inf

    def available(self, now_s: float) -> int:
        """Whole tokens at this time."""
        if self._at_s == -math.inf:
            self._at_s = now_s
        gained = max(now_s - self._at_s, 0.0) * self.rate.per_second
        self._tokens = min(self._tokens + gained, float(self.rate.burst))
        self._at_s = max(now_s, self._at_s)
        # A token that is due must count: sums of small steps fall short of it by rounding.
        return math.floor(self._tokens + 1e-9)

    def take(self, now_s: float) -> bool:
        """Use one up; False if there is none."""
        if self.available(now_s) < 1:
            return False
        self._tokens -= 1
        return True

    def next_s(self, now_s: float) -> float:
        """When there will be a whole token."""
        missing = 1 - self._tokens if self.available(now_s) < 1 else 0.0
        return now_s + max(missing, 0.0) / self.rate.per_second
