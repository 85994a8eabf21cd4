"""A hundred cells under skewed load, simulated: who gets what, how soon, and what one loss does.

Each cell is a queue that begins so many jobs a second. Kinds are as unequal as words of a language
(the second is asked for half as often as the first). A bridge gives each job to a cell that serves
its kind: the less busy of two, by what the cells said a second ago. The directory has each kind
served by a few cells, or by as many as its share needs.

After half of the time one cell is lost. What waited in it is called again in others when its leases
have ended; what comes goes elsewhere as soon as its silence is noticed.
"""

from __future__ import annotations

import itertools
import random
from typing import Final

from msgspec import Struct

STEP_S: Final = 0.01
SAID_EVERY_S: Final = 1.0
LEASE_S: Final = 30.0
NOTICED_S: Final = 7.0
"""After one missed heartbeat."""
FEW: Final = 8


class World(Struct, frozen=True, kw_only=True):
    """What is simulated."""

    cells: int = 100
    kinds: int = 1_000
    capacity_per_s: float
    """Of one cell."""
    load: float = 0.5
    """Of all capacity."""
    by_share: bool = True
    """Whether the directory has frequent kinds served by more cells."""
    seconds: float = 90.0
    seed: int = 0


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of it."""

    p50_s: float
    p99_s: float
    """From a job's call to its first claim, over all jobs before the loss."""
    busiest: float
    """The busiest cell's share of jobs, by the average one's."""
    lost_p99_s: float
    """The same wait after the loss."""
    lost_max_s: float
    recovered_s: float
    """From the loss to when no cell's queue is longer than before."""


class _Cell:
    def __init__(self) -> None:
        self.waiting: list[tuple[float, float]] = []
        """Jobs with the time at which they were called: (since, how many), the oldest first."""
        self.backlog = 0.0
        self.said = 0.0
        self.taken = 0.0
        self.is_lost = False

    def put(self, since_s: float, count: float) -> None:
        self.waiting.append((since_s, count))
        self.backlog += count
        self.taken += count

    def begin(self, room: float, now_s: float, waits: list[tuple[float, float]]) -> None:
        done = 0
        for since_s, count in self.waiting:
            if room <= 0:
                break
            some = min(count, room)
            waits.append((now_s - since_s, some))
            room -= some
            self.backlog -= some
            if some < count:
                self.waiting[done] = (since_s, count - some)
                break
            done += 1
        del self.waiting[:done]


def _serving(world: World, chance: random.Random) -> tuple[list[float], list[list[int]]]:
    """Jobs a second of each kind with those before it, and the cells that serve each."""
    weights = [1 / rank for rank in range(1, world.kinds + 1)]
    whole = world.load * world.capacity_per_s * world.cells
    rates = [whole * weight / sum(weights) for weight in weights]
    served = []
    for rate in rates:
        needed = round(rate / (0.1 * world.capacity_per_s)) if world.by_share else 0
        served.append(chance.sample(range(world.cells), min(max(FEW, needed), world.cells)))
    return list(itertools.accumulate(rates)), served


def _of(waits: list[tuple[float, float]], share: float) -> float:
    """The wait that this share of the jobs does not exceed."""
    left = sum(count for _, count in waits) * share
    for wait_s, count in sorted(waits):
        left -= count
        if left <= 0:
            return wait_s
    return 0.0


class _Run:
    """The state of one simulation."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = random.Random(world.seed)
        self.rates, self.served = _serving(world, self.chance)
        self.whole_per_s = self.rates[-1]
        self.cells = [_Cell() for _ in range(world.cells)]
        self.lost_at_s = world.seconds / 2
        self.victim = self.cells[self.served[0][0]]
        self.orphans: list[tuple[float, float, float]] = []
        """Of the lost cell: when they are called again, since when they wait, how many."""
        self.before: list[tuple[float, float]] = []
        self.after: list[tuple[float, float]] = []
        self.usual = self.recovered_s = 0.0

    def step(self, number: int) -> None:
        now_s = number * STEP_S
        if number % round(SAID_EVERY_S / STEP_S) == 0:
            for one in self.cells:
                one.said = one.backlog
        if not self.victim.is_lost and now_s >= self.lost_at_s:
            self._lose(now_s)
        self._arrive(now_s)
        while self.orphans and self.orphans[0][0] <= now_s:
            _, since_s, count = self.orphans.pop(0)
            self.chance.choice(self._left()).put(since_s, count)
        waits = self.after if self.victim.is_lost else self.before
        for one in self._left():
            one.begin(self.world.capacity_per_s * STEP_S, now_s, waits)
        longest = max(one.backlog for one in self._left())
        if self.victim.is_lost and (self.orphans or longest > self.usual):
            self.recovered_s = now_s - self.lost_at_s

    def _left(self) -> list[_Cell]:
        return [one for one in self.cells if not one.is_lost]

    def _lose(self, now_s: float) -> None:
        longest = max(one.backlog for one in self.cells)
        self.usual = longest + self.world.capacity_per_s * SAID_EVERY_S
        self.victim.is_lost = True
        waiting = self.victim.waiting
        self.orphans = [(now_s + LEASE_S, since_s, count) for since_s, count in waiting]
        waiting.clear()

    def _arrive(self, now_s: float) -> None:
        is_noticed = now_s >= self.lost_at_s + NOTICED_S
        mean = self.whole_per_s * STEP_S
        count = int(mean) + (self.chance.random() < mean - int(mean))
        draw = self.chance.random
        for places in self.chance.choices(self.served, cum_weights=self.rates, k=count):
            one = self.cells[places[int(draw() * len(places))]]
            other = self.cells[places[int(draw() * len(places))]]
            if other.said < one.said or (is_noticed and one.is_lost):
                one = other
            if one.is_lost and not is_noticed:
                self.orphans.append((now_s + LEASE_S, now_s, 1))
            else:
                (self.chance.choice(self._left()) if one.is_lost else one).put(now_s, 1)


def simulate(world: World) -> Outcome:
    """One run; the same seed is the same run."""
    run = _Run(world)
    for number in range(round(world.seconds / STEP_S)):
        run.step(number)
    shares = [one.taken for one in run.cells if not one.is_lost]
    return Outcome(
        p50_s=round(_of(run.before, 0.5), 3),
        p99_s=round(_of(run.before, 0.99), 3),
        busiest=round(max(shares) / (sum(shares) / len(shares)), 2),
        lost_p99_s=round(_of(run.after, 0.99), 3),
        lost_max_s=round(max(wait_s for wait_s, _ in run.after), 1),
        recovered_s=round(run.recovered_s, 1),
    )
