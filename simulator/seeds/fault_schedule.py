"""The schedule of faults: what fails, when, and when it works again.

What happens and when is drawn from the seed; whom it strikes is drawn at that moment, and often it
is a worker that has its hands full. Each fault is a method of `FaultSchedule`; `MENU` gives their
weights. `stop` undoes everything that is still broken: then the cluster has to come to rest.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

from antiphon.testing.virtual_time import Host
from simulator.actors.machines import FullMachine, Machine, WorkerMachine
from simulator.actors.owner import Scribe
from simulator.actors.workload import KINDS, SubmitterMachine
from simulator.cluster import Cluster
from simulator.hostile.answers_of_others import ANSWERS_OF_OTHERS
from simulator.hostile.attacks import AUDITED_DEEDS, DEEDS
from simulator.hostile.forgeries import FORGERIES
from simulator.hostile.hostile_member import HostileMember
from simulator.hostile.misused_services import MISUSE
from simulator.hostile.starvation import GREED
from simulator.hostile.steps_of_others import STEPS_OF_OTHERS
from simulator.network import HalfOpen
from simulator.seeds.grant_plan import GrantPlan

AT_WORST: Final = 0.4
"""Faults that look for a worker in the middle of something."""

FRESH_KEY: Final = 0.3
"""Workers that come back as strangers."""
ROUTED, PAUSED = 0.6, 0.8
"""Up to where changes by the owner are routes, and then pauses; the others are rules."""

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

ENGINE_MS: Final = 300.0
"""How wrong the clock of a server may be that takes over from another."""
HALF_OPEN_S: Final = (0.5, 45.0)
NOTICED: Final = 0.4
"""Half-open lines that somebody notices in the end, and makes anew."""
KEPT: Final = 0.6
"""Half-open lines that pass on afterwards what they held back; the others lose it."""
FORGOTTEN_S: Final = (0.0, 20.0)
"""How much a server that was killed may have forgotten of what its queues handed out."""

DRIFT_MS: Final = 1_300
"""How wrong a clock may be set that it still lies within the drift, whatever the engine's own
clock (`ENGINE_MS`) and the crystals (`world.CRYSTAL`) add in an hour."""
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

LAST_CALL_S: Final = (0.0, 0.3)
"""How soon after somebody decides to revoke: about when the revocation reaches the log."""

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
CHAINED_MENU: Final[dict[str, int]] = MENU | {
    "hostile": 66,
    "revocation": 12,
    "last_call": 4,
    "new_grant": 3,
}
"""Where every op needs a chain, chains break too."""


class FaultSchedule:
    """Breaks one cluster."""

    def __init__(  # noqa: PLR0913 - what there is to break
        self,
        cluster: Cluster,
        chance: random.Random,
        *,
        machines: list[Machine],
        grant_plan: GrantPlan,
        hostile_member: HostileMember,
        stress: tuple[str, ...] = (),
        has_steps: bool = False,
        is_audited: bool = False,
        has_questions: bool = False,
    ) -> None:
        """`machines` are the honest ones that it may break; `stress`, what it does most."""
        self.cluster = cluster
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._machines = machines
        self._workers = [one for one in machines if isinstance(one, WorkerMachine)]
        self._submitters = [one for one in machines if isinstance(one, SubmitterMachine)]
        self._undo: dict[int, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._undone = 0
        self._context = contextvars.copy_context()
        self._grant_plan = grant_plan
        self._hostile_member = hostile_member
        self._deeds = DEEDS | GREED | MISUSE | (FORGERIES if grant_plan.is_chained else {})
        if has_steps:
            self._deeds |= STEPS_OF_OTHERS
        if is_audited:
            self._deeds |= AUDITED_DEEDS
        if has_questions:
            self._deeds |= ANSWERS_OF_OTHERS
        self._weights = [STRESS if name in stress else 1 for name in self._deeds]
        menu = CHAINED_MENU if grant_plan.is_chained else MENU
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
        self.cluster.referee.traps.clear()
        self.cluster.weather.clear()
        if not self.cluster.server.is_up:
            self.cluster.server.start()
        self.cluster.clock.correct()
        for machine in (*self._machines, self._grant_plan.owner):
            machine.clock.correct()
            machine.boot()
        self._hostile_member.kill()

    # --- how every fault strikes, is counted and ends -------------------------------------------

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

    # --- of processes ---------------------------------------------------------------------------

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
                self._grant_plan.admit(machine)

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

        self.cluster.referee.traps.append(trap)

    def second_life(self) -> None:
        """A process dies in the middle of a write and is back at once, with its key and its home.

        What it sent may arrive when its next life has begun: nobody knows the outcome.
        """
        wanted = self._chance.choice(REBORN)
        wait_s = self._chance.choice((0.0, 0.0005, 0.002, 0.02))
        late_s = self._chance.choice((0.0, self._chance.uniform(0.0, 6.0)))
        weather = self.cluster.weather

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
                until_s = self.cluster.loop.time() + late_s
                weather.half_open[struck[0].name] = HalfOpen(is_mute=True, until_s=until_s)
            self._later(wait_s, lambda: strike(struck[0]))
            return True

        self.cluster.referee.traps.append(trap)

    def drain(self) -> None:
        """A worker is asked to stop, and comes back."""
        worker = self._chance.choice(self._workers)
        if worker.is_up:
            self._count("drain", worker)
            worker.drain()
        self._later(self._chance.uniform(6.0, 30.0), worker.boot)

    # --- of lines, and of the server at their end -----------------------------------------------

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
        machine, is_mute = self._one(), self._chance.random() < 0.5
        away_s = self._chance.uniform(*HALF_OPEN_S)
        is_kept = self._chance.random() < KEPT
        is_noticed = self._chance.random() < NOTICED
        weather, engine = self.cluster.weather, machine.engine
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
        """The engine is unreachable for a while."""
        self._down(self._chance.uniform(1.0, 30.0), "outage")

    def failover(self) -> None:
        """Another server takes over, and its clock is not quite the old one's."""
        self._down(self._chance.uniform(0.1, 3.0), "failover")
        wrong_ms = self._chance.uniform(-ENGINE_MS, ENGINE_MS)
        self.cluster.clock.step(wrong_ms - self.cluster.clock.error_ms)

    def restart(self) -> None:
        """The server is killed and back at once, with an older memory of what was acknowledged.

        The log is whole: it was synced before anybody was told (spec §3). How far the queues were
        settled was not, so they hand out again what they had handed out before.
        """
        server, cluster = self.cluster.server, self.cluster
        old_s, away_s = self._chance.uniform(*FORGOTTEN_S), self._chance.uniform(0.05, 2.0)
        queues = cluster.server.mesh(cluster.mesh)._queues  # noqa: SLF001 - as a disk would hold it
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
        if self.cluster.server.is_up:
            self.counts[name] += 1
            self.cluster.server.kill()
            self._later(away_s, self.cluster.server.start)

    def storm(self) -> None:
        """Messages are lost, late, doubled: everywhere, or around one machine."""
        weather, level = self.cluster.weather, self._chance.uniform(0.02, 0.35)
        last_s = self._chance.uniform(5.0, 90.0)
        if self._chance.random() < 0.5:
            self.counts["storm"] += 1
            weather.everywhere = level
            self._later(last_s, weather.calm)
            return
        machine = self._one()
        self._count("local storm", machine)
        weather.around[machine.name] = min(0.8, 2 * level)
        self._later(last_s, lambda: weather.spare(machine.name))

    # --- of clocks ------------------------------------------------------------------------------

    def step(self) -> None:
        """A clock is set wrong: mostly by less than the drift, sometimes by far."""
        machine, draw = self._one(), self._chance.random()
        spread_ms = self._chance.uniform(-1.0, 1.0) * DRIFT_MS
        far_ms = self._chance.random()
        if draw < 0.6:
            self._count("small step", machine)
            machine.clock.step(spread_ms - machine.clock.error_ms)
            return
        self._count("large step", machine)
        machine.clock.step(-far_ms * BACK_MS if draw < 0.8 else far_ms * AHEAD_MS)
        self._later(self._chance.uniform(5.0, 90.0), machine.clock.correct)

    def jump(self) -> None:
        """A machine's clock jumps by minutes or hours, either way, and is set right later on."""
        machine, by_ms = self._one(), self._chance.choice(JUMPS_MS) * self._chance.uniform(0.3, 1.0)
        is_ahead = self._chance.random() < 0.5
        self._count("jump ahead" if is_ahead else "jump back", machine)
        machine.clock.step(by_ms if is_ahead else -by_ms)
        self._later(self._chance.uniform(*JUMPED_S), machine.clock.correct)

    def race(self) -> None:
        """A machine's clocks run fast or slow, all of them, until somebody sets them right."""
        machine, rate = self._one(), self._chance.choice(RATES)
        self._count("fast clock" if rate > 0 else "slow clock", machine)
        machine.clock.run_at(rate)

        def right_again() -> None:
            machine.clock.run_at(machine.clock.usual_rate)
            machine.clock.correct()

        self._later(self._chance.uniform(*JUMPED_S), right_again)

    def engine_jump(self) -> None:
        """The engine's clock jumps: stamps of later records may be earlier, or far ahead."""
        clock, is_ahead = self.cluster.clock, self._chance.random() < 0.5
        share = self._chance.uniform(0.01, 1.0) ** 2
        self.counts["engine's clock ahead" if is_ahead else "engine's clock back"] += 1
        clock.step(share * ENGINE_AHEAD_MS if is_ahead else -share * ENGINE_BACK_MS)
        self._later(self._chance.uniform(*ENGINE_JUMPED_S), clock.correct)

    # --- of members, and what the owner does about them -----------------------------------------

    def hostile(self) -> None:
        """The hostile member does one of its deeds."""
        name = self._chance.choices(tuple(self._deeds), weights=self._weights)[0]
        if self._hostile_member.act(self._deeds[name]):
            self.counts[f"hostile {name}"] += 1

    def control(self) -> None:
        """The owner changes a route, a pause or the rules under everybody's feet."""
        worker, kind = self._chance.choice(self._workers), self._chance.choice(KINDS)
        last_s, attempts = self._chance.uniform(10.0, 120.0), self._chance.randint(2, 5)
        self.counts["control"] += 1
        owner, drawn = self._grant_plan.owner, self._chance.random()
        if drawn < ROUTED:
            target = self._chance.choice((worker.holder, worker.keyring.did))
            owner.route(kind, target)
            self._later(last_s, lambda: self._grant_plan.owner.route(kind, None))
        elif drawn < PAUSED:
            owner.pause(kind)
            self._later(last_s, lambda: self._grant_plan.owner.pause(kind, is_paused=False))
        else:
            owner.rule(attempts)

    def quarantine(self) -> None:
        """Somebody is shown to have signed two ops with one timestamp, and later readmitted."""
        machine = self._one() if self._chance.random() < HONEST_SHARE else self._hostile_member
        last_s, did = self._chance.uniform(*QUARANTINE_S), machine.keyring.did
        if self._grant_plan.quarantine(machine):
            self._count("quarantine", machine)
            self._later(last_s, lambda: self._grant_plan.owner.readmit(did))

    def revocation(self) -> None:
        """The owner or a middle-man takes back what somebody holds, often in the middle of it."""
        draw = self._chance.random()
        others = (*self._grant_plan.brokers, self._hostile_member)
        machine = self._one() if draw < HONEST_SHARE else self._chance.choice(others)
        taken = self._grant_plan.revoke(machine)
        if taken:
            self._count("revocation", machine)

    def last_call(self) -> None:
        """A submitter loses what it holds and submits at that moment: nobody may run that."""
        submitter = self._chance.choice(self._submitters)
        if self._grant_plan.revoke(submitter):
            self._count("last call", submitter)
            self._later(self._chance.uniform(*LAST_CALL_S), submitter.hurry)

    def recovery(self, vault: Scribe, heir: Scribe) -> None:
        """The owner's key is lost: the recovery key names another."""
        self.counts["recovery"] += 1
        self._grant_plan.recover(vault, heir)

    def new_grant(self) -> None:
        """Somebody is granted something else, beside what it has."""
        machine = self._one()
        self._count("new grant", machine)
        self._grant_plan.endow(machine)
