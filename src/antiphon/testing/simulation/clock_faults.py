"""Faults of clocks: set wrong a little or by far, running fast or slow; the engine's own, too."""

from __future__ import annotations

from typing import Final

from antiphon.testing.simulation.breaking import Breaker

DRIFT_MS: Final = 1_300
"""How wrong a clock may be set that it still lies within the drift, whatever the engine's own
clock (`line_faults.ENGINE_MS`) and the crystals (`world.CRYSTAL`) add in an hour."""
BACK_MS: Final = 600_000
AHEAD_MS: Final = 45_000
"""Steps beyond the drift."""
HOUR_MS: Final = 3_600_000
JUMPS_MS: Final = (60_000, 600_000, HOUR_MS, 5 * HOUR_MS)
JUMPED_S: Final = (5.0, 240.0)
RATES: Final = (-0.2, -0.02, 0.02, 0.2)
"""How much too fast a broken clock runs."""
ENGINE_AHEAD_MS: Final = 600_000
ENGINE_BACK_MS: Final = HOUR_MS
"""What is accepted under an engine that is ahead holds everybody up for as long (spec §4.2)."""
ENGINE_JUMPED_S: Final = (2.0, 60.0)


class ClockFaults(Breaker):
    """Sets clocks wrong."""

    def step(self) -> None:
        """A clock is set wrong: mostly by less than the drift, sometimes by far."""
        machine, draw = self._one(), self._chance.random()
        spread_ms = self._chance.uniform(-1.0, 1.0) * DRIFT_MS
        far_ms = self._chance.random()
        if draw < 0.6:  # noqa: PLR2004
            self._count("small step", machine)
            machine.clock.step(spread_ms - machine.clock.error_ms)
            return
        self._count("large step", machine)
        machine.clock.step(-far_ms * BACK_MS if draw < 0.8 else far_ms * AHEAD_MS)  # noqa: PLR2004
        self._later(self._chance.uniform(5.0, 90.0), machine.clock.correct)

    def jump(self) -> None:
        """A machine's clock jumps by minutes or hours, either way, and is set right later on."""
        machine, by_ms = self._one(), self._chance.choice(JUMPS_MS) * self._chance.uniform(0.3, 1.0)
        is_ahead = self._chance.random() < 0.5  # noqa: PLR2004
        self._count("jump ahead" if is_ahead else "jump back", machine)
        machine.clock.step(by_ms if is_ahead else -by_ms)
        self._later(self._chance.uniform(*JUMPED_S), machine.clock.correct)

    def race(self) -> None:
        """A machine's clocks run fast or slow, all of them, until somebody sets them right."""
        machine, rate = self._one(), self._chance.choice(RATES)
        usual = machine.clock.rate
        self._count("fast clock" if rate > 0 else "slow clock", machine)
        machine.clock.run_at(rate)

        def right_again() -> None:
            machine.clock.run_at(usual)
            machine.clock.correct()

        self._later(self._chance.uniform(*JUMPED_S), right_again)

    def engine_jump(self) -> None:
        """The engine's clock jumps: stamps of later records may be earlier, or far ahead."""
        clock, is_ahead = self.ground.clock, self._chance.random() < 0.5  # noqa: PLR2004
        share = self._chance.uniform(0.01, 1.0) ** 2
        self.counts["engine's clock ahead" if is_ahead else "engine's clock back"] += 1
        clock.step(share * ENGINE_AHEAD_MS if is_ahead else -share * ENGINE_BACK_MS)
        self._later(self._chance.uniform(*ENGINE_JUMPED_S), clock.correct)
