"""Faults drawn message by message: what the memory engine's own tests put it through.

Everything is drawn from the random source that is handed in, so that one seed is one run.
"""

from dataclasses import dataclass, field

from antiphon.engines.memory.faults import Fate
from antiphon.ports import Entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Shares in [0, 1] of messages that meet each fault, and how long delays may be."""

    request_lost: float = 0.0
    request_delayed: float = 0.0
    answer_lost: float = 0.0
    answer_delayed: float = 0.0
    request_twice: float = 0.0
    read_lags: float = 0.0
    delivery_lost: float = 0.0
    delivery_delayed: float = 0.0
    notice_lost: float = 0.0
    notice_delayed: float = 0.0
    bus_lost: float = 0.0
    bus_delayed: float = 0.0
    max_delay_s: float = 10.0
    """Delays are uniform in (0, this]. Above the callers' timeouts, so that some arrive late."""
    max_lag: int = 8
    """Most records by which a lagging replica is behind."""
    max_reconnect_s: float = 2.0
    """A connection comes back after a uniform wait in [0, this]."""


READS = frozenset({"read", "read_lane", "fetch", "last", "confirm"})


@dataclass(slots=True)
class RandomFaults:
    """Draws each fate independently from the entropy that it was given.

    `rates` may be replaced while running: a simulator has calm phases and storms.
    """

    entropy: Entropy
    rates: FaultRates = field(default_factory=FaultRates)

    def request(self, what: str) -> Fate:
        """Loss, delay, doubling and lag, each with its own rate."""
        rates = self.rates
        lag = 0
        if what in READS and self._hits(rates.read_lags):
            lag = 1 + int(self.entropy.random() * rates.max_lag)
        return Fate(
            lost=self._hits(rates.request_lost),
            delay_s=self._delay(rates.request_delayed),
            answer_lost=self._hits(rates.answer_lost),
            answer_delay_s=self._delay(rates.answer_delayed),
            twice=self._hits(rates.request_twice),
            lag=lag,
        )

    def delivery(self) -> Fate:
        """Loss and delay of an announcement."""
        return self._one_way(self.rates.delivery_lost, self.rates.delivery_delayed)

    def notice(self) -> Fate:
        """Loss and delay of the news of a record."""
        return self._one_way(self.rates.notice_lost, self.rates.notice_delayed)

    def bus(self) -> Fate:
        """Loss and delay of a bus message."""
        return self._one_way(self.rates.bus_lost, self.rates.bus_delayed)

    def reconnect(self) -> Fate:
        """How long it takes to come back."""
        return Fate(delay_s=self.entropy.random() * self.rates.max_reconnect_s)

    def _one_way(self, lost: float, delayed: float) -> Fate:
        return Fate(lost=self._hits(lost), delay_s=self._delay(delayed))

    def _hits(self, rate: float) -> bool:
        # A rate of zero draws nothing: switching one fault off leaves the others' draws alone.
        return rate > 0.0 and self.entropy.random() < rate

    def _delay(self, rate: float) -> float:
        return self.entropy.random() * self.rates.max_delay_s if self._hits(rate) else 0.0
