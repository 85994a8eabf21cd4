"""The schedule of faults: what breaks, when, and when it is whole again.

What happens and when is drawn from the seed; whom it strikes is drawn at that moment, and often
it is a worker that has its hands full. Each fault is a method of `Adversary`; `MENU` gives their
weights. `stop` undoes everything that is still broken: then the cluster has to come to rest.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from antiphon.testing.simulation.charter import Charter
from antiphon.testing.simulation.clock_faults import ClockFaults
from antiphon.testing.simulation.deeds import DEEDS
from antiphon.testing.simulation.forgeries import FORGERIES
from antiphon.testing.simulation.greed import GREED
from antiphon.testing.simulation.ground import Ground
from antiphon.testing.simulation.hostile import Mallory
from antiphon.testing.simulation.line_faults import LineFaults
from antiphon.testing.simulation.machines import Machine, WorkerMachine
from antiphon.testing.simulation.network import HalfOpen
from antiphon.testing.simulation.owner import Scribe
from antiphon.testing.simulation.workload import KINDS
from antiphon.testing.virtual_time import Host

FRESH_KEY: Final = 0.3
"""Workers that come back as strangers."""
ROUTED: Final = 0.7
"""Changes by the owner that are routes; the others are rules."""

HONEST_SHARE: Final = 0.75
"""Quarantines and revocations that strike one of the machines; the others, who is above them."""
QUARANTINE_S: Final = (60.0, 200.0)

DEADLY: Final = 0.35
"""Ambushes that kill; the others make the signer stand still."""
AMBUSHED: Final = (
    "job.complete",
    "job.complete",
    "job.yield",
    "job.claim",
    "job.expire",
    "job.offer",
    "job.schedule",
)

STRESS: Final = 10
"""How much likelier something is that a plan puts to the test."""
REBORN: Final = ("job.claim", "job.claim", "job.complete", "job.yield", "job.schedule")

MENU: Final[dict[str, int]] = {
    "crash": 18,
    "pause": 12,
    "ambush": 20,
    "cut_off": 12,
    "split": 3,
    "half_open": 10,
    "outage": 5,
    "failover": 5,
    "restart": 4,
    "step": 9,
    "jump": 4,
    "race": 2,
    "engine_jump": 1,
    "second_life": 8,
    "drain": 4,
    "storm": 8,
    "hostile": 52,
    "control": 4,
    "quarantine": 3,
}
CHAINED_MENU: Final[dict[str, int]] = MENU | {"hostile": 66, "revocation": 12, "new_grant": 3}
"""Where every op needs a chain, chains break too."""


class Adversary(LineFaults, ClockFaults):
    """Breaks one cluster."""

    def __init__(
        self,
        ground: Ground,
        chance: random.Random,
        *,
        machines: list[Machine],
        charter: Charter,
        mallory: Mallory,
        stress: tuple[str, ...] = (),
    ) -> None:
        """`machines` are the honest ones that it may break; `stress`, what it does most."""
        super().__init__(ground, chance, machines)
        self._charter = charter
        self._mallory = mallory
        self._deeds = DEEDS | GREED | (FORGERIES if charter.is_chained else {})
        self._weights = [STRESS if name in stress else 1 for name in self._deeds]
        menu = CHAINED_MENU if charter.is_chained else MENU
        self._menu = {name: menu[name] * (STRESS if name in stress else 1) for name in menu}

    async def run(self, *, span_s: float, per_hour: float) -> None:
        """Break things at random moments for so long."""
        count = round(span_s * per_hour / 3600)
        moments = sorted(self._chance.uniform(0.0, span_s) for _ in range(count))
        menu = self._menu
        names = self._chance.choices(tuple(menu), weights=tuple(menu.values()), k=count)
        loop = asyncio.get_running_loop()
        for moment, name in zip(moments, names, strict=True):
            await asyncio.sleep(max(0.0, moment - loop.time()))
            getattr(self, name)()

    def stop(self) -> None:
        """Undo whatever is still broken; set every clock right."""
        self.mend()
        self.ground.referee.traps.clear()
        self.ground.weather.clear()
        if not self.ground.server.is_up:
            self.ground.server.start()
        self.ground.clock.correct()
        for machine in (*self._machines, self._charter.owner):
            machine.clock.correct()
            machine.boot()
        self._mallory.kill()

    # --- faults -----------------------------------------------------------------------------

    def crash(self) -> None:
        """A process dies; later it is back with its key, or as a stranger."""
        down_s = self._chance.choice((0.5, self._chance.uniform(1, 60)))
        self._kill(self._one(), down_s, "crash")

    def _kill(self, machine: Machine, down_s: float, name: str) -> None:
        fresh = isinstance(machine, WorkerMachine) and self._chance.random() < FRESH_KEY
        self._count(name, machine)
        machine.kill()
        self._later(down_s, lambda: self._revive(machine, fresh_key=fresh))

    def _revive(self, machine: Machine, *, fresh_key: bool) -> None:
        if not machine.is_up:
            machine.boot(fresh_key=fresh_key)
            if fresh_key:
                self._charter.admit(machine)

    def pause(self) -> None:
        """A machine stands still, often for longer than a lease, and then goes on."""
        machine, still_s = self._one(), self._chance.choice((2.0, 12.0, 25.0, 50.0))
        still_s *= self._chance.uniform(0.5, 1.5)
        self._freeze(machine, still_s, "pause")

    def _freeze(self, machine: Machine, still_s: float, name: str) -> None:
        host = machine.host
        if host is not None and not host.is_frozen:
            self._count(name, machine)
            host.freeze()
            self._later(still_s, host.thaw)

    def ambush(self) -> None:
        """Wait for a signature, and strike the signer before or just after the op is sent."""
        wanted, still_s = self._chance.choice(AMBUSHED), self._chance.uniform(6.0, 75.0)
        wait_s = self._chance.choice((None, 0.0, 0.002, 0.006))
        is_deadly = self._chance.random() < DEADLY

        def strike(machine: Machine) -> None:
            if is_deadly:
                self._kill(machine, still_s / 3, "ambush, death")
            else:
                self._freeze(machine, still_s, "ambush, pause")

        def trap(kind_of_op: str, host: Host | None) -> bool:
            struck = [one for one in self._machines if one.host is host]
            if host is None or not struck or kind_of_op != wanted:
                return False
            if wait_s is None:
                strike(struck[0])
            else:
                self._later(wait_s, lambda: strike(struck[0]))
            return True

        self.ground.referee.traps.append(trap)

    def second_life(self) -> None:
        """A process dies in the middle of a write and is back at once, with its key and its home.

        What it sent may arrive when its next life has begun: nobody knows the outcome.
        """
        wanted = self._chance.choice(REBORN)
        wait_s = self._chance.choice((0.0, 0.0005, 0.002, 0.02))
        late_s = self._chance.choice((0.0, self._chance.uniform(0.0, 6.0)))
        weather = self.ground.weather

        def strike(machine: Machine) -> None:
            weather.half_open.pop(machine.name, None)
            if machine.is_up:
                self._count("second life", machine)
                machine.kill()
                machine.boot()

        def trap(kind_of_op: str, host: Host | None) -> bool:
            struck = [one for one in self._machines if one.host is host]
            if host is None or not struck or kind_of_op != wanted:
                return False
            if late_s and struck[0].name not in weather.half_open:
                until_s = self.ground.loop.time() + late_s
                weather.half_open[struck[0].name] = HalfOpen(is_mute=True, until_s=until_s)
            self._later(wait_s, lambda: strike(struck[0]))
            return True

        self.ground.referee.traps.append(trap)

    def drain(self) -> None:
        """A worker is asked to stop, and comes back."""
        worker = self._chance.choice(self._workers)
        if worker.is_up:
            self._count("drain", worker)
            worker.drain()
        self._later(self._chance.uniform(6.0, 30.0), worker.boot)

    def hostile(self) -> None:
        """The hostile member does one of its deeds."""
        name = self._chance.choices(tuple(self._deeds), weights=self._weights)[0]
        if self._mallory.act(self._deeds[name]):
            self.counts[f"hostile {name}"] += 1

    def control(self) -> None:
        """The owner changes a route or the rules under everybody's feet."""
        worker, kind = self._chance.choice(self._workers), self._chance.choice(KINDS)
        last_s, attempts = self._chance.uniform(10.0, 120.0), self._chance.randint(2, 5)
        self.counts["control"] += 1
        if self._chance.random() < ROUTED:
            target = self._chance.choice((worker.holder, worker.keyring.did))
            self._charter.owner.route(kind, target)
            self._later(last_s, lambda: self._charter.owner.route(kind, None))
        else:
            self._charter.owner.rule(attempts)

    def quarantine(self) -> None:
        """Somebody is shown to have signed two ops with one timestamp, and later readmitted."""
        machine = self._one() if self._chance.random() < HONEST_SHARE else self._mallory
        last_s, did = self._chance.uniform(*QUARANTINE_S), machine.keyring.did
        if self._charter.quarantine(machine):
            self._count("quarantine", machine)
            self._later(last_s, lambda: self._charter.owner.readmit(did))

    def revocation(self) -> None:
        """The owner or a middle-man takes back what somebody holds, often in the middle of it."""
        draw = self._chance.random()
        others = (*self._charter.brokers, self._mallory)
        machine = self._one() if draw < HONEST_SHARE else self._chance.choice(others)
        taken = self._charter.revoke(machine)
        if taken:
            self._count("revocation", machine)

    def recovery(self, vault: Scribe, heir: Scribe) -> None:
        """The owner's key is lost: the recovery key names another."""
        self.counts["recovery"] += 1
        self._charter.recover(vault, heir)

    def new_grant(self) -> None:
        """Somebody is granted something else, beside what it has."""
        machine = self._one()
        self._count("new grant", machine)
        self._charter.endow(machine)
