"""What can go wrong between one node and the memory server.

The engine asks a `Faults` at five points and does what the `Fate` says. Nothing here knows the
log: a fault is decided per message. Three more faults are switches and live where they act:
`MemoryServer.kill`, `MemoryEngine.sever` and `MemoryEngine.pause`.

A connection without faults never gets here: the engine keeps `None` and takes the fast path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of one message. A field that makes no sense at a point is ignored there."""

    lost: bool = False
    """It never arrives; the caller waits out its timeout."""
    delay_s: float = 0.0
    """It arrives this much later; beyond the caller's timeout it still arrives."""
    answer_lost: bool = False
    """It is carried out, and the answer is lost."""
    answer_delay_s: float = 0.0
    """The answer comes this much later."""
    twice: bool = False
    """It arrives a second time, right behind the first; the first answer counts."""
    share: float = 1.0
    """Of a request for several things, the share that arrives; the rest is lost on the way."""
    answer_share: float = 1.0
    """Of what arrived, the share whose answer comes."""
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
