"""Two readers of the same claims: one hears most of them at once, the other late and in any order.

Agents say on every beat what they do. What an agent says while it is cut off is heard when it is
connected again; each reader hears it after a delay of its own, and some of it twice. The law
`equal_reports`: when a bar is about to change no more, both report it alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from antiphon.core.tempo.bars.bar_window import BARS_RECONCILED, BarWindows, settled
from antiphon.core.tempo.messages import BarReport, BeatFrame, StatusClaim, TaskState
from antiphon.core.tempo.time_text import hlc_text
from simulator.checks.laws import Violation

STATES: Final[tuple[TaskState, ...]] = ("planning", "executing", "waiting", "review")
LONGEST_S: Final = (0.05, 40.0)
"""The longest way to each reader. With a partition before it, shorter than the bars that can
change."""
TWICE: Final = 0.05
"""Claims that a reader hears twice."""
TASKS: Final = 3
"""Of each agent."""


class ReportReaders:
    """Who says what, who hears it when, and what both make of it."""

    def __init__(self, mesh: str, seed: int, now_s: Callable[[], float]) -> None:
        self.bars = 0
        """Bars that were compared."""
        self.bars_changed = 0
        """Of those: bars whose first report, at their end, was another than their last."""
        self.violations: list[Violation] = []
        self._chance = random.Random(f"{seed} readers")
        self._now_s = now_s
        self._readers = (BarWindows(mesh), BarWindows(mesh))
        self._held: dict[str, list[StatusClaim]] = {}
        """What those said who are cut off."""
        self._on_the_way: list[tuple[float, int, int, StatusClaim]] = []
        self._number = 0
        self._first: dict[int, BarReport] = {}

    def say(self, agent: str, at: tuple[int, int], beat_index: int, *, is_cut: bool) -> None:
        """An agent says what it does; nobody hears it while it is cut off."""
        claim = StatusClaim(
            agent_id=agent,
            task_id=f"simulated/{self._chance.randrange(TASKS)}",
            beat_index=beat_index,
            state=self._chance.choice(STATES),
            hlc=hlc_text(at),
            beats_left=self._chance.randrange(2),
        )
        self._held.setdefault(agent, []).append(claim)
        if not is_cut:
            self.connect(agent)

    def connect(self, agent: str) -> None:
        """An agent is connected: what it said is on its way."""
        for claim in self._held.pop(agent, ()):
            for reader, longest_s in enumerate(LONGEST_S):
                for _ in range(1 + (self._chance.random() < TWICE)):
                    self._number += 1
                    at_s = self._now_s() + self._chance.uniform(0, longest_s)
                    heappush(self._on_the_way, (at_s, self._number, reader, claim))

    def hear(self, frame: BeatFrame) -> None:
        """A leader's beat began: hear what has arrived; on a downbeat another bar begins."""
        while self._on_the_way and self._on_the_way[0][0] <= self._now_s():
            _, _, whose, claim = heappop(self._on_the_way)
            self._readers[whose].claim(claim, claim.agent_id)
        start_ms, known = frame.meter.anchor_ms, self._readers[0].starts
        if not frame.revision or (known and start_ms <= known[-1]):
            return
        if len(known) == BARS_RECONCILED:
            self._compare(known[0])
        for reader in self._readers:
            reader.begin(frame.meter, start_ms)
        if known:
            self._first[known[-1]] = settled(self._readers[0].report(known[-1]))

    def _compare(self, start_ms: int) -> None:
        near, far = (settled(reader.report(start_ms)) for reader in self._readers)
        self.bars += 1
        self.bars_changed += self._first.pop(start_ms, near) != near
        if near != far:
            what = f"two readers report the bar at {near.window_start} differently"
            self.violations.append(Violation("equal_reports", what))
