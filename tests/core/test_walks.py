"""Long seeded walks over the machine of test_machine: deeper logs than shrinking can afford.

A failing seed is the test's own name: `pytest tests/core/test_walks.py -k "seed7-"`.
"""

import random

import pytest

from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobCancel
from antiphon.core.families.jobs.state import HELD, State
from tests.core.test_machine import DAY, EVERYONE, PLACES_FOR_JUNK, SLIPS, AnyInterleaving, OneLane


class Walk:
    """Draws the same kinds of arguments as Hypothesis does, with odds chosen for long lives."""

    def __init__(self, machine, seed):
        self.machine = machine
        self.chance = random.Random(seed)

    def twist(self):
        pick = self.chance.choice
        every = {
            "prev": pick([-1, 1, 5]),
            "wall": pick([-DAY * 31, -30_000, -1, 1_999, 2_001]),
            "repeat": True,
            "stamp": pick([-20_000, -1, 1, 20_000, DAY * 31]),
            "deps": pick(["good", "bad", "future"]),
            "harm": pick(["mesh", "subject", "signature", "bytes"]),
        }
        names = self.chance.sample(list(every), pick([0, 0, 0, 1, 1, 2]))
        return {name: every[name] for name in names}

    def step(self):
        pick, machine = self.chance.choice, self.machine
        at = self.chance.randrange(4)
        moves = [self.disturb] * 6
        if machine.pick(0, {State.WAITING}):
            moves += [self.offer] * 2
        if machine.pick(0, {State.PENDING}):
            moves += [self.take] * 4
        if machine.pick(0, HELD):
            moves += [self.hold] * 8
            if self.chance.random() < 0.1:
                moves += [self.finish]
        if machine.pick(0, {State.CLAIMED}):
            moves += [lambda: machine.begin(at=at, **self.claim_to_be())]
        pick(moves)()

    def offer(self):
        pick = self.chance.choice
        self.machine.offer(
            at=self.chance.randrange(4),
            by=pick(EVERYONE),
            off=pick([None, -2, -1, 0]),
            twist=pick(SLIPS),
        )

    def claim_to_be(self):
        """Mostly the holder with its fence."""
        pick = self.chance.choice
        return {
            "by": pick([None] * 6 + list(EVERYONE)),
            "name": pick(["current"] * 6 + ["old", "zero", "future"]),
            "twist": pick(SLIPS),
        }

    def finish(self):
        at, status = self.chance.randrange(4), self.chance.choice(["succeeded", "failed"])
        self.machine.finish(at=at, status=status, **self.claim_to_be())

    def take(self):
        pick = self.chance.choice
        self.machine.take(
            at=self.chance.randrange(4),
            by=pick(EVERYONE),
            begin=pick([True, False]),
            patient=pick([True, True, False]),
            lease_ms=pick([10_000, 60_000]),
        )

    def hold(self):
        pick, machine, at = self.chance.choice, self.machine, self.chance.randrange(4)
        match pick(["renew", "renew", "give back", "lapse", "lapse"]):
            case "renew":
                machine.renew(
                    at=at,
                    lease_ms=pick([10_000, 120_000]),
                    named=pick([True, False]),
                    off=pick([None, None, -1, 0]),
                    twist=pick(SLIPS),
                )
            case "give back":
                reason = pick(["error", "drain", "drain"])
                pause = pick([0, 7_000])
                machine.give_back(at=at, reason=reason, pause=pause, **self.claim_to_be())
            case _:
                off = pick([-1, -1, 0, 5_000])
                machine.lapse(at=at, by=pick(EVERYONE), off=off, twist=pick(SLIPS))

    def disturb(self):
        pick, machine, at = self.chance.choice, self.machine, self.chance.randrange(4)
        match pick(["anything"] * 4 + ["govern", "junk", "time"]):
            case "anything":
                machine.anything(
                    at=at,
                    by=pick([None, None, *EVERYONE]),
                    name=pick(["current"] * 4 + ["old", "zero", "future"]),
                    kind=pick([kind for kind in JOBS.ops if kind is not JobCancel]),
                    flag=pick([True, False]),
                    number=self.chance.randrange(5),
                    twist=self.twist(),
                )
            case "govern":
                machine.govern(
                    what=pick(["route", "coordinator", "rules"]),
                    to=pick(EVERYONE),
                    by=pick(EVERYONE),
                    flag=pick([True, False]),
                    twist=self.twist(),
                    values=pick([{}, {"yields_max": 5}, {"attempts": 2}, {"attempts": 101}]),
                )
            case "junk":
                place = pick(PLACES_FOR_JUNK)
                machine.junk(at=at, junk=pick([None, b"junk"]), back=1 + at, place=place)
            case _:
                machine.time_passes(by_ms=pick([1, 900, 5_001]))


@pytest.mark.req("M4", "M5", "M6", "M7", "M8", "M9", "M10", "M11")
@pytest.mark.parametrize("machine", [AnyInterleaving, OneLane])
@pytest.mark.parametrize("seed", range(12), ids=lambda seed: f"seed{seed}")
def test_a_long_walk_keeps_every_guarantee(seed, machine):
    walker = Walk(machine(), seed)
    walker.machine.call_them_all(
        waits=[2_000 if seed % 2 == 0 else None] * 4, attempts=[None, 5, 40][seed % 3], window=None
    )
    for _ in range(200):
        walker.step()
    walker.machine.teardown()
