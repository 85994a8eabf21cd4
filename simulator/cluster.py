"""What all machines of a simulated cluster share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from antiphon.core.protocol import Protocol
from antiphon.engines.memory import MemoryServer
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import Host, VirtualLoop
from simulator.checks.referee import Referee
from simulator.network import Weather

EPOCH_MS: Final = 1_763_000_000_000
"""True wall time at virtual time 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One server, one mesh, one referee, one weather, one loop."""

    seed: int
    loop: VirtualLoop
    clock: HostClock
    """The engine's own clock: it stamps every commit."""
    server: MemoryServer
    mesh: str
    protocol: Protocol
    weather: Weather
    referee: Referee
    dead: list[Host] = field(default_factory=list)
    """Machines' past lives: their tasks must have ended before the run does."""

    @property
    def true_ms(self) -> int:
        """What a clock shows that is right."""
        return EPOCH_MS + int(self.loop.time() * 1000)
