"""How much somebody may do in a time: tokens that outlive the process that counts them.

Tokens grow again at `per_s` up to `burst`. They are counted by the wall clock, so that another
process, or a later one, can go on with the count.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct


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
    except msgspec.MsgspecError:
        return None
