"""A simulated machine's clocks, and its source of randomness."""

from __future__ import annotations

import random

from antiphon.testing.virtual_time import VirtualLoop


class HostClock:
    """`ports.WallClock` of one machine: `skew_ms` off, and `rate` parts too fast."""

    def __init__(
        self, loop: VirtualLoop, *, epoch_ms: int, skew_ms: float = 0.0, rate: float = 0.0
    ) -> None:
        """`rate` 0.0001 gains a tenth of a millisecond each second, on both clocks."""
        self._loop = loop
        self._epoch_ms = epoch_ms
        self._skew_ms = skew_ms
        self.rate = rate
        self.usual_rate = rate
        self._since_s = 0.0
        self._boot_s = 0.0
        """What the clock that nobody sets showed when the rate was last changed."""

    def now_ms(self) -> int:
        """Wall time, as this machine believes it to be."""
        return int(self._epoch_ms + self._skew_ms + self.boot_s() * 1000)

    def now_ns(self) -> int:
        """The same in nanoseconds, for an engine that stamps with them."""
        fraction_ms = self._skew_ms + self.boot_s() * 1000
        return self._epoch_ms * 1_000_000 + int(fraction_ms * 1_000_000)

    def boot_s(self) -> float:
        """Seconds that no step touches; a fast crystal is fast here too."""
        return self._boot_s + (self._loop.time() - self._since_s) * (1.0 + self.rate)

    def step(self, by_ms: float) -> None:
        """Set the wall clock forward or back."""
        self._skew_ms += by_ms

    def run_at(self, rate: float) -> None:
        """Run so much too fast from now on; nothing jumps."""
        self._boot_s, self._since_s = self.boot_s(), self._loop.time()
        self.rate = rate

    def correct(self) -> None:
        """Set the wall clock right, as of now."""
        self._skew_ms = (self._loop.time() - self.boot_s()) * 1000

    @property
    def error_ms(self) -> float:
        """How far ahead of true time this clock is."""
        return self._skew_ms + (self.boot_s() - self._loop.time()) * 1000


class SeededEntropy:
    """`ports.Entropy` from a label: the same label is the same chance."""

    def __init__(self, label: str) -> None:
        """Text seeds go through a hash, so similar labels give unrelated streams."""
        self._random = random.Random(label)

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def token(self, size: int) -> bytes:
        """Bytes that only the seed decides."""
        return self._random.randbytes(size)
