"""What can go wrong between one node and the memory server.

The engine asks a `Faults` at five points and does what the `Fate` says. Nothing here knows the
log: a fault is decided per message, from a random source that is handed in, so that one seed is
one run. Three more faults are switches and live where they act: `MemoryServer.kill`,
`MemoryEngine.sever` and `MemoryEngine.pause`.

A connection without faults never gets here: the engine keeps `None` and takes the short way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from antiphon.ports import Entropy


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one message. A field that makes no sense at a point is ignored there."""

    lost: bool = False
    """It never arrives; the caller waits out its timeout."""
    delay_s: float = 0.0
    """It arrives so much later; beyond the caller's timeout it still arrives."""
    answer_lost: bool = False
    """It is carried out and nobody is told."""
    answer_delay_s: float = 0.0
    """The answer comes so much later."""
    twice: bool = False
    """It arrives a second time, right behind the first; the first answer counts."""
    lag: int = 0
    """A read is answered by a replica that lacks this many of the newest records."""


FINE = Fate()


class Faults(Protocol):
    """Decides, message by message. Called once per message, in the order they are sent."""

    def request(self, what: str) -> Fate:
        """A request to the server, such as `append`, `read`, `ack` or `lease.create`."""

    def delivery(self) -> Fate:
        """An announcement on its way to a worker. Lost: its loan runs out."""

    def notice(self) -> Fate:
        """The news of a committed record, on its way to one follower."""

    def bus(self) -> Fate:
        """A bus message on its way to one subscriber."""

    def reconnect(self) -> Fate:
        """A connection that may come back now. Only `delay_s` counts."""


class NoFaults:
    """All is well. The engine takes a shorter way when it is given this one."""

    def request(self, what: str) -> Fate:  # noqa: ARG002 - the protocol names it
        """Fine."""
        return FINE

    def delivery(self) -> Fate:
        """Fine."""
        return FINE

    def notice(self) -> Fate:
        """Fine."""
        return FINE

    def bus(self) -> Fate:
        """Fine."""
        return FINE

    def reconnect(self) -> Fate:
        """Fine."""
        return FINE


NO_FAULTS = NoFaults()


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
