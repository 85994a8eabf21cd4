"""The ways in which `chaos clock` sets clocks wrong."""

from __future__ import annotations

import random
from typing import Final

from msgspec import Struct

from chaos.cluster.mesh import SHORT_LEASES

DAY_S: Final = 86_400.0
SPANS: Final = (
    ("within", 0.05, SHORT_LEASES.max_drift_ms / 1000 * 0.7),
    ("seconds", 1.0, 60.0),
    ("minutes", 60.0, 3_600.0),
    ("hours", 3_600.0, DAY_S),
    ("days", DAY_S, 25 * DAY_S),
)
"""How far clocks jump; the first span lies within the drift that the rules allow."""
RATES: Final = (1.2, 0.8)
WRONG_S: Final = (0.4, 2.5)
SUSPENDED_S: Final = (0.5, 3.0)
"""Leases are 1 to 2 s long: many of them are over when the process goes on."""


class Jump(Struct, frozen=True, kw_only=True):
    """One way for clocks to be wrong."""

    how: str
    """A span, `drift` or `suspend`."""
    by_s: float
    """Ahead, or behind if negative; for `drift` seconds gained in a second."""
    wrong_s: float
    everybody: bool = False
    restarts: bool = False
    """Whether the process is killed meanwhile and starts again under the wrong clock."""

    def __str__(self) -> str:
        who = "everybody: " if self.everybody else ""
        restarts = ", with a restart" if self.restarts else ""
        return f"{who}{self.how} {self.by_s:+.1f} s for {self.wrong_s:.1f} s{restarts}"

    @property
    def is_refused(self) -> bool:
        """Whether the rules refuse every op under a clock that is so wrong."""
        return self.how in {"seconds", "minutes", "hours", "days"}


def draw(chance: random.Random) -> Jump:
    """Any jump; every span forwards and back as often."""
    wrong_s = chance.uniform(*WRONG_S)
    dice = chance.random()
    if dice < 0.1:
        return Jump(how="suspend", by_s=0.0, wrong_s=chance.uniform(*SUSPENDED_S))
    if dice < 0.25:
        return Jump(how="drift", by_s=chance.choice(RATES) - 1, wrong_s=wrong_s + 1.5)
    how, least_s, most_s = chance.choice(SPANS)
    by_s = least_s * (most_s / least_s) ** chance.random() * chance.choice((-1, 1))
    everybody, restarts = chance.random() < 0.1, chance.random() < 0.25
    if restarts and not everybody:
        return Jump(how=how, by_s=by_s, wrong_s=wrong_s, restarts=True)
    return Jump(how=how, by_s=by_s, wrong_s=wrong_s, everybody=everybody)
