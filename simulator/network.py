"""The simulated network: small latency always, delay and loss in bad phases.

A machine's line asks here for the fate of each message. One draw decides it; which faults are
possible and how likely they are depends on the weather, which the adversary makes. Every fault
is counted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final

from msgspec import Struct

from antiphon.engines.memory.faults import FINE, Fate

LATENCY_S: Final = 0.004
"""The most that a message takes in fair weather."""
LATENCY_SHARE: Final = 0.4
"""Messages that take any time worth mentioning; the others arrive at once."""
LATE_S: Final = 12.0
"""The longest delay in bad weather: beyond every caller's timeout, so some arrive afterwards."""
MAX_LAG: Final = 8
"""Most records by which a replica that answers a read may be behind."""
RECONNECT_S: Final = 2.0

USUAL: Final = 0.004
"""Messages that go wrong on any day."""

READS: Final = frozenset({"read", "read_lane", "fetch", "last", "confirm"})


class HalfOpen(Struct, frozen=True):
    """A line of which one direction carries nothing, and both ends believe that it does."""

    is_mute: bool
    """Whether nothing reaches the server; otherwise nothing comes back from it."""
    until_s: float | None
    """When what was held back is passed on, as a pipe does that was only stuck; or never."""

    def held_up(self, now_s: float) -> Fate:
        """What becomes of a message on the side that carries nothing."""
        if self.until_s is None:
            return Fate(lost=True)
        return Fate(delay_s=max(self.until_s - now_s, 0.0))

    def unanswered(self, now_s: float) -> Fate:
        """What becomes of a request that arrives, and whose answer does not."""
        if self.until_s is None:
            return Fate(answer_lost=True)
        return Fate(answer_delay_s=max(self.until_s - now_s, 0.0))


class Weather:
    """How likely a message meets a fault: everywhere, and for single machines."""

    def __init__(self) -> None:
        """As usual."""
        self.everywhere = USUAL
        self.around: dict[str, float] = {}
        self.half_open: dict[str, HalfOpen] = {}
        self.counts: Counter[str] = Counter()

    def calm(self) -> None:
        """As usual again."""
        self.everywhere = USUAL

    def spare(self, name: str) -> None:
        """As usual again around one machine."""
        self.around.pop(name, None)

    def clear(self) -> None:
        """Nothing goes wrong any more, anywhere."""
        self.everywhere = 0.0
        self.around.clear()
        self.half_open.clear()

    def chance(self, name: str) -> float:
        """The share of this machine's messages that go wrong."""
        return max(self.everywhere, self.around.get(name, 0.0))


class Network:
    """`Faults` of one machine's line."""

    def __init__(self, name: str, weather: Weather, chance: random.Random) -> None:
        """`chance` belongs to this line alone."""
        self._name = name
        self._weather = weather
        self._random = chance.random

    def request(self, what: str) -> Fate:
        """Fine, slow, late, lost, answered to nobody, doubled, or served by a lagging copy."""
        half = self._weather.half_open.get(self._name)
        if half is not None:
            return self._half(half, what)
        if what == "grant":
            # A pull request that is lost is renewed by a real engine; this one counts on it.
            return FINE
        chance, draw = self._weather.chance(self._name), self._random()
        if draw >= chance:
            rest = (draw - chance) / (1.0 - chance)
            if rest >= LATENCY_SHARE:
                return FINE
            share = rest / LATENCY_SHARE
            return Fate(delay_s=share * LATENCY_S, answer_delay_s=(1.0 - share) * LATENCY_S)
        return self._fault(what)

    def _half(self, half: HalfOpen, what: str) -> Fate:
        now_s = asyncio.get_running_loop().time()
        self._weather.counts["request unheard" if half.is_mute else "answer unheard"] += 1
        if what == "grant":
            # Asked for again by a real client for as long as nothing comes (see `request`).
            return FINE if not half.is_mute else Fate(lost=True)
        return half.held_up(now_s) if half.is_mute else half.unanswered(now_s)

    def _fault(self, what: str) -> Fate:
        kind = int(self._random() * 6)
        late_s = self._random() * LATE_S
        if what in READS and kind >= 3:
            self._weather.counts["lagging read"] += 1
            return Fate(lag=1 + int(late_s / LATE_S * MAX_LAG))
        match kind:
            case 0:
                self._weather.counts["request lost"] += 1
                return Fate(lost=True)
            case 1:
                self._weather.counts["answer lost"] += 1
                return Fate(answer_lost=True)
            case 2:
                self._weather.counts["request late"] += 1
                return Fate(delay_s=late_s)
            case 3:
                self._weather.counts["answer late"] += 1
                return Fate(answer_delay_s=late_s)
            case 4 if what == "append_many":
                self._weather.counts["request torn"] += 1
                return Fate(share=late_s / LATE_S)
            case 5 if what == "append_many":
                self._weather.counts["answer torn"] += 1
                return Fate(answer_share=late_s / LATE_S)
            case _:
                self._weather.counts["request doubled"] += 1
                return Fate(twice=True, delay_s=late_s / 100)

    def delivery(self) -> Fate:
        """An announcement on its way."""
        return self._one_way("announcement")

    def notice(self) -> Fate:
        """News of a record on its way."""
        return self._one_way("notice")

    def bus(self) -> Fate:
        """A message nobody stores."""
        return self._one_way("bus message")

    def reconnect(self) -> Fate:
        """How long it takes to come back."""
        return Fate(delay_s=self._random() * RECONNECT_S)

    def _one_way(self, what: str) -> Fate:
        half = self._weather.half_open.get(self._name)
        if half is not None and not half.is_mute:
            self._weather.counts[f"{what} unheard"] += 1
            return half.held_up(asyncio.get_running_loop().time())
        chance, draw = self._weather.chance(self._name), self._random()
        if draw >= chance:
            return FINE
        if draw * 2 < chance:
            self._weather.counts[f"{what} lost"] += 1
            return Fate(lost=True)
        self._weather.counts[f"{what} late"] += 1
        return Fate(delay_s=self._random() * LATE_S)
