"""How many messages one sender may send: a bucket of tokens that outlives the gate (spec §10)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

PER_S: Final = 20.0
BURST: Final = 100.0


class SendRate(Struct, frozen=True):
    """Tokens at a moment; they grow again at `per_s` up to `burst`."""

    tokens: float
    at_ms: int

    def at(self, now_ms: int, *, per_s: float = PER_S, burst: float = BURST) -> SendRate:
        """The same at a later time. Another gate's clock may be behind: it gains nothing."""
        gained = max(now_ms - self.at_ms, 0) * per_s / 1000
        return SendRate(min(self.tokens + gained, burst), max(now_ms, self.at_ms))

    @property
    def may_send(self) -> bool:
        """Whether there is a token for one message."""
        return self.tokens >= 1

    def less(self, count: int) -> SendRate:
        """After so many more messages."""
        return SendRate(max(self.tokens - count, 0.0), self.at_ms)

    def wait_ms(self, *, per_s: float = PER_S) -> int:
        """How long until there is a token."""
        return 0 if self.may_send else int((1 - self.tokens) * 1000 / per_s) + 1


_decode = msgspec.json.Decoder(SendRate).decode


def read_rate(data: bytes) -> SendRate | None:
    """What a gate wrote; None if it is nothing of the kind."""
    try:
        return _decode(data)
    except msgspec.MsgspecError:
        return None
