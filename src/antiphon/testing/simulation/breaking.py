"""What all faults have in common: whom they strike, how they are counted, and that they end."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from antiphon.testing.simulation.ground import Ground
from antiphon.testing.simulation.machines import FullMachine, Machine, WorkerMachine

AT_WORST: Final = 0.4
"""Faults that look for a worker in the middle of something."""


class Breaker:
    """Breaks something for a while, and mends it again."""

    def __init__(self, ground: Ground, chance: random.Random, machines: list[Machine]) -> None:
        """`machines` are the honest ones that it may break."""
        self.ground = ground
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._machines = machines
        self._workers = [one for one in machines if isinstance(one, WorkerMachine)]
        self._undo: dict[int, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._undone = 0
        self._context = contextvars.copy_context()

    def mend(self) -> None:
        """Undo whatever is still broken."""
        while self._undo:  # what is undone may break something else, to be undone as well
            timer, undo = self._undo.pop(next(iter(self._undo)))
            timer.cancel()
            undo()

    def _later(self, after_s: float, undo: Callable[[], None]) -> None:
        self._undone += 1
        number = self._undone

        def now() -> None:
            del self._undo[number]
            undo()

        # In its own context: set from within a machine, a frozen one would hold its own thaw.
        timer = asyncio.get_running_loop().call_later(after_s, now, context=self._context)
        self._undo[number] = (timer, undo)

    def _one(self) -> Machine:
        draw = self._chance.random()
        busy = [one for one in self._workers if one.worker is not None and one.worker.busy]
        return self._chance.choice(busy if busy and draw < AT_WORST else self._machines)

    def _count(self, name: str, machine: Machine) -> None:
        where = "full node" if isinstance(machine, FullMachine) else type(machine).__name__
        self.counts[f"{name} of {where.removesuffix('Machine').lower()}"] += 1
