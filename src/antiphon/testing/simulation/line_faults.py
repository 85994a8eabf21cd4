"""Faults of lines and of the server: what is cut, half open, away, or back with an older memory."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.testing.simulation.breaking import Breaker
from antiphon.testing.simulation.machines import Machine
from antiphon.testing.simulation.network import HalfOpen

ENGINE_MS: Final = 300.0
"""How wrong the clock of a server may be that takes over from another."""
HALF_OPEN_S: Final = (0.5, 45.0)
NOTICED: Final = 0.4
"""Half-open lines that somebody notices in the end, and makes anew."""
KEPT: Final = 0.6
"""Half-open lines that pass on afterwards what they held back; the others lose it."""
FORGOTTEN_S: Final = (0.0, 20.0)
"""How much a server that was killed may have forgotten of what its queues handed out."""


class LineFaults(Breaker):
    """Breaks lines, and the server at their end."""

    def cut_off(self) -> None:
        """One machine loses its line."""
        self._sever([self._one()], "cut off")

    def split(self) -> None:
        """Several machines lose their lines together."""
        count = self._chance.randint(2, len(self._machines) - 1)
        self._sever(self._chance.sample(self._machines, count), "split")

    def _sever(self, machines: list[Machine], name: str) -> None:
        away_s = self._chance.uniform(0.5, 40.0)
        for machine in machines:
            engine = machine.engine
            if engine is not None:
                self._count(name, machine)
                engine.sever()
                self._later(away_s, engine.heal)

    def half_open(self) -> None:
        """A line carries one direction only: requests go nowhere, or nothing comes back."""
        machine, is_mute = self._one(), self._chance.random() < 0.5  # noqa: PLR2004
        away_s = self._chance.uniform(*HALF_OPEN_S)
        is_kept = self._chance.random() < KEPT
        is_noticed = self._chance.random() < NOTICED
        weather, engine = self.ground.weather, machine.engine
        if engine is None or machine.name in weather.half_open:
            return
        self._count("half open, mute" if is_mute else "half open, deaf", machine)
        until_s = asyncio.get_running_loop().time() + away_s
        weather.half_open[machine.name] = HalfOpen(is_mute, until_s if is_kept else None)

        def whole_again() -> None:
            weather.half_open.pop(machine.name, None)
            if is_noticed:
                engine.sever()
                engine.heal()

        self._later(away_s, whole_again)

    def outage(self) -> None:
        """The engine is away for a while."""
        self._down(self._chance.uniform(1.0, 30.0), "outage")

    def failover(self) -> None:
        """Another server takes over, and its clock is not quite the old one's."""
        self._down(self._chance.uniform(0.1, 3.0), "failover")
        wrong_ms = self._chance.uniform(-ENGINE_MS, ENGINE_MS)
        self.ground.clock.step(wrong_ms - self.ground.clock.error_ms)

    def restart(self) -> None:
        """The server is killed and back at once, with an older memory of what was acknowledged.

        The log is whole: it was synced before anybody was told (spec §3). How far the queues were
        settled was not, so they hand out again what they had handed out before.
        """
        server, ground = self.ground.server, self.ground
        old_s, away_s = self._chance.uniform(*FORGOTTEN_S), self._chance.uniform(0.05, 2.0)
        queues = ground.server.mesh(ground.mesh)._queues  # noqa: SLF001 - as a disk would hold it
        memory = {name: queue.image() for name, queue in queues.items()}

        def come_back() -> None:
            for name, image in memory.items():
                queues[name].load(image)
            server.start()

        def strike() -> None:
            if server.is_up:
                self.counts["restart"] += 1
                server.kill()
                self._later(away_s, come_back)

        self._later(old_s, strike)

    def _down(self, away_s: float, name: str) -> None:
        if self.ground.server.is_up:
            self.counts[name] += 1
            self.ground.server.kill()
            self._later(away_s, self.ground.server.start)

    def storm(self) -> None:
        """Messages are lost, late, doubled: everywhere, or around one machine."""
        weather, level = self.ground.weather, self._chance.uniform(0.02, 0.35)
        last_s = self._chance.uniform(5.0, 90.0)
        if self._chance.random() < 0.5:  # noqa: PLR2004
            self.counts["storm"] += 1
            weather.everywhere = level
            self._later(last_s, weather.calm)
            return
        machine = self._one()
        self._count("local storm", machine)
        weather.around[machine.name] = min(0.8, 2 * level)
        self._later(last_s, lambda: weather.spare(machine.name))
