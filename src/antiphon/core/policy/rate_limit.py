"""Rate limits: how many jobs may start in a period, and how much a party may ask for.

Token buckets. A worker's `Bucket` fills at the rate and holds a second's worth (at least one
token), so at most `rate · t` and one bucketful more start in `t` seconds. `Tokens` outlive the
process that counts them: they go by the wall clock, so that another process can go on.
"""

from __future__ import annotations

import math
import re
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
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


class Allowance(Struct, frozen=True):
    """What is allowed: `burst` at once, and `per_s` after that."""

    per_s: float
    burst: float

    @property
    def full_ms(self) -> int:
        """How long until an empty one is full again."""
        return int(self.burst / self.per_s * 1000) + 1


class Tokens(Struct, frozen=True):
    """What is left at a moment."""

    left: float
    at_ms: int

    def at(self, now_ms: int, allowance: Allowance) -> Tokens:
        """The same at a later time. Another gate's clock may be behind: it gains nothing."""
        gained = max(now_ms - self.at_ms, 0) * allowance.per_s / 1000
        return Tokens(min(self.left + gained, allowance.burst), max(now_ms, self.at_ms))

    def less(self, cost: float) -> Tokens:
        """After so much more; below 0, what is given back."""
        return Tokens(max(self.left - cost, 0.0), self.at_ms)

    def wait_s(self, cost: float, allowance: Allowance) -> float:
        """How long until there is enough for this; 0 if there is."""
        return max(cost - self.left, 0.0) / allowance.per_s


_decode = msgspec.json.Decoder(Tokens).decode


def read_tokens(data: bytes) -> Tokens | None:
    """What a gate wrote; None if it is nothing of the kind."""
    try:
        return _decode(data)
    except UNREADABLE:
        return None
