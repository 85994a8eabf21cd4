"""Half an hour of beats, with everything that can happen to those who send and hear them.

Real pulses and real clocks of `antiphon.runtime.tempo` on the memory engine, in virtual time: some
machines are candidates, all others listen and count. Clocks are off, run at wrong speeds and are
set; leaders are killed, frozen and cut off from the leases; listeners are cut off for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.rules import Rules
from antiphon.core.bus.signed_message import Message, Refused
from antiphon.core.bus.subjects import BEAT
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.tempo.messages import BeatFrame, Suggestion
from antiphon.core.tempo.meter import Beat
from antiphon.core.tempo.policy import TempoPolicy
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse import Pulse
from antiphon.runtime.tempo.tempo_messages import BEAT_FRAMES
from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import Host, VirtualLoop
from simulator.checks.laws import Violation
from simulator.patch import patched
from simulator.speedups import no_collector, quiet_and_quick
from simulator.tempo import tempo_laws
from simulator.tempo.report_readers import ReportReaders
from simulator.tempo.tempo_laws import Counted, Sent

EPOCH_MS: Final = 1_800_000_000_000
SETTLING_S: Final = 20.0
"""The first leader is found, and every listener hears it."""
ENDING_S: Final = 5.0
LOST: Final = 0.01
"""Frames that a listener misses."""
NEW_TARGET: Final = 0.2
"""Bars in which the adaptation changes its mind."""
MOST_OFF_MS: Final = 5_000
"""A machine whose clock is further off says nothing."""
RULES: Final = Rules(authority="open")


class TempoPlan(Struct, frozen=True, kw_only=True):
    """One world."""

    seed: int
    minutes: float = 30.0
    agents: int = 200
    candidates: int = 5
    faults_per_minute: float = 2.0


class TempoOutcome(Struct, frozen=True, kw_only=True):
    """What came of it."""

    seed: int
    seconds: float
    """Simulated."""
    beats: int
    """That listeners counted."""
    terms: int
    kills: int
    takeover_beats_max: float
    tempo_changes: int
    bars: int
    """Whose reports were compared."""
    bars_changed: int
    """By claims that came late."""
    drift_pct: float
    faults: dict[str, int]
    violations: list[Violation]
    digest: str
    """Of every frame and of what was counted: the same world has the same one."""


class _Line:
    """One machine's network: small delays, a few lost beats, and the leases cut off for a while."""

    def __init__(self, chance: random.Random, loop: VirtualLoop) -> None:
        self._chance = chance
        self._loop = loop
        self.no_leases_until_s = 0.0

    def request(self, what: str) -> Fate:
        if what.startswith("lease.") and self._loop.time() < self.no_leases_until_s:
            return Fate(lost=True)
        return Fate(delay_s=self._chance.uniform(0.0, 0.03))

    def delivery(self) -> Fate:
        return FINE

    def notice(self) -> Fate:
        return FINE

    def bus(self) -> Fate:
        if self._chance.random() < LOST:
            return Fate(lost=True)
        return Fate(delay_s=self._chance.uniform(0.0, 0.05))

    def reconnect(self) -> Fate:
        return FINE


class _Machine:
    """One machine: a candidate, or one that only listens."""

    def __init__(self, world: TempoWorld, name: str, *, is_candidate: bool) -> None:
        chance = random.Random(f"{world.plan.seed} {name}")
        self.world, self.name, self.is_candidate = world, name, is_candidate
        self.host = Host(name, world.loop)
        self.wall = HostClock(
            world.loop,
            epoch_ms=EPOCH_MS,
            skew_ms=chance.uniform(-1500, 1500),
            rate=chance.uniform(-1, 1) * 1e-4,
        )
        self.line = _Line(chance, world.loop)
        self.engine = MemoryEngine(world.server, world.mesh, faults=self.line)
        self.key = SeedKeyring(SeededEntropy(f"{world.plan.seed} {name} key").token(32))
        author = Author(world.mesh, self.key, self.wall, max_drift_ms=2_000, mark=NoMark())
        entropy = SeededEntropy(f"{world.plan.seed} {name} chance")
        self.session = Session(self.engine, author, self.wall, entropy)
        self.clock = BeatClock(self.session)
        self.pulse: Pulse | None = None
        self.followed: list[Sent] = []
        self.counted: Counted | None = None
        self.is_cut = False

    async def run(self) -> None:
        await self.session.sync_control()
        self.clock.watchers.append(self._note)
        async with asyncio.TaskGroup() as tasks:
            if self.is_candidate:
                self.pulse = Pulse(self.clock, self.key, suggest=self.world.suggest)
                tasks.create_task(self.pulse.run())
            tasks.create_task(self._count())

    async def _count(self) -> None:
        loop = self.world.loop
        async with self.clock.listen() as beats:
            async for beat in beats:
                if loop.time() < SETTLING_S:
                    continue
                if self.counted is None:
                    at_s = loop.time()
                    self.counted = Counted(self.name, at_s, beat.epoch_ms, at_s, beat.epoch_ms)
                else:
                    self.counted.count(loop.time(), beat)
                self._say(beat)

    def _say(self, beat: Beat) -> None:
        """Say what it does, unless its clock is wrong: such a machine leaves work to others."""
        now = self.session.author.now()
        if abs(now[0] - self.world.wall.now_ms()) <= MOST_OFF_MS:
            self.world.readers.say(self.key.did, now, beat.index, is_cut=self.is_cut)

    def sever(self) -> None:
        """Cut it off."""
        self.is_cut = True
        self.engine.sever()

    def heal(self) -> None:
        """Connect it again."""
        self.is_cut = False
        self.engine.heal()
        self.world.readers.connect(self.key.did)

    def _note(self, message: Message[BeatFrame]) -> None:
        self.followed.append(Sent(self.world.loop.time(), message.body))

    def die(self) -> None:
        self.engine.crash()
        self.host.kill()


class TempoWorld:
    """All machines, what happens to them, and what was seen."""

    def __init__(self, plan: TempoPlan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(outside=("antiphon.engines.memory",))  # type: ignore[abstract]
        self.chance = random.Random(f"{plan.seed} world")
        self.wall = wall = HostClock(self.loop, epoch_ms=EPOCH_MS)
        self.server = MemoryServer(wall)
        self.owner = SeedKeyring(SeededEntropy(f"{plan.seed} owner").token(32))
        self._genesis = genesis.sign(
            self.owner, wall, name="tempo", recovery=self.owner.did, rules=RULES
        )
        self.mesh = self._genesis.mesh
        self.readers = ReportReaders(self.mesh, plan.seed, self.loop.time)
        self.sent: list[Sent] = []
        self.died_s: list[float] = []
        self.faults: Counter[str] = Counter()
        self.machines: list[_Machine] = []
        self.past: list[_Machine] = []
        self._target = 15

    def suggest(self) -> Suggestion:
        """What the adaptation would like: another tempo now and then."""
        if self.chance.random() < NEW_TARGET:
            self._target = self.chance.randint(4, 40)
        return Suggestion(tempo_bpm=self._target)

    # --- a run ------------------------------------------------------------------------------------

    def run(self) -> TempoOutcome:
        """Run it, and hold it against the laws."""
        with no_collector(), quiet_and_quick(), _opened_once():
            try:
                self.loop.run_until_complete(self._play())
            finally:
                self.loop.close()
        return self._outcome()

    async def _play(self) -> None:
        owner = await self._found()
        tap = asyncio.ensure_future(self._tap(owner))
        names = [f"candidate {at}" for at in range(self.plan.candidates)]
        names += [f"agent {at}" for at in range(self.plan.agents - self.plan.candidates)]
        for name in names:
            self._start(name, is_candidate=name.startswith("candidate"))
        await asyncio.sleep(SETTLING_S)
        ends_s = self.loop.time() + self.plan.minutes * 60
        while self.loop.time() < ends_s:
            await asyncio.sleep(self.chance.expovariate(self.plan.faults_per_minute / 60))
            await self._harm()
        tap.cancel()
        for machine in self.machines:
            machine.die()
        await asyncio.sleep(ENDING_S)

    async def _found(self) -> Session:
        engine = MemoryEngine(self.server, self.mesh)
        await genesis.write(engine.log, self._genesis)
        wall = HostClock(self.loop, epoch_ms=EPOCH_MS)
        author = Author(self.mesh, self.owner, wall, max_drift_ms=2_000, mark=NoMark())
        session = Session(engine, author, wall, SeededEntropy(f"{self.plan.seed} tap"))
        await session.sync_control()
        policy = TempoPolicy()
        policy = replace(policy, adaptation=replace(policy.adaptation, enable=True))
        await write_one(session, Intent(MeshTempo, TempoBody(policy=policy)), BEHIND)
        return session

    async def _tap(self, owner: Session) -> None:
        """Keep every frame, in the order in which they were sent."""
        async with owner.engine.bus.subscribe(BEAT.at()) as frames:
            async for frame in frames:
                opened = BEAT_FRAMES.open(
                    frame.payload, mesh=self.mesh, subject=BEAT.at(), now_ms=owner.wall.now_ms()
                )
                if not isinstance(opened, Refused):
                    self.sent.append(Sent(self.loop.time(), opened.body))
                    self.readers.hear(opened.body)

    def _start(self, name: str, *, is_candidate: bool) -> None:
        machine = _Machine(self, name, is_candidate=is_candidate)
        self.machines.append(machine)
        machine.host.start(machine.run())

    # --- faults -----------------------------------------------------------------------------------

    async def _harm(self) -> None:
        what = self.chance.choice(("kill", "kill", "partition", "freeze", "no_leases", "step"))
        self.faults[what] += 1
        beat_s = self.sent[-1].frame.beat_ms / 1000 if self.sent else 4.0
        leader = next(
            (one for one in self.machines if one.pulse is not None and one.pulse.is_leader), None
        )
        match what:
            case "kill" if leader is not None:
                await self._kill(leader, beat_s)
            case "freeze" if leader is not None:
                leader.host.freeze()
                await asyncio.sleep(beat_s * self.chance.uniform(0.5, 4))
                leader.host.thaw()
                await asyncio.sleep(3 * beat_s)
            case "no_leases" if leader is not None:
                lasts_s = beat_s * self.chance.uniform(1, 4)
                leader.line.no_leases_until_s = self.loop.time() + lasts_s
                await asyncio.sleep(lasts_s + 3 * beat_s)
            case "partition":
                cut = self.chance.sample(self.machines, len(self.machines) // 5)
                if 2 * sum(one.is_candidate for one in cut) >= self.plan.candidates:
                    cut = [one for one in cut if not one.is_candidate]
                for one in cut:
                    one.sever()
                await asyncio.sleep(self.chance.uniform(5, 60))
                for one in cut:
                    one.heal()
                await asyncio.sleep(3 * beat_s)
            case "step":
                for one in self.chance.sample(self.machines, len(self.machines) // 10):
                    one.wall.step(self.chance.uniform(-20_000, 20_000))
            case _:
                self.faults[what] -= 1

    async def _kill(self, leader: _Machine, beat_s: float) -> None:
        self.died_s.append(self.loop.time())
        leader.die()
        self.machines.remove(leader)
        self.past.append(leader)
        await asyncio.sleep(3 * beat_s)
        self._start(f"{leader.name}+", is_candidate=True)

    # --- the end ----------------------------------------------------------------------------------

    def _outcome(self) -> TempoOutcome:
        ended_s = self.loop.time()
        took = list(tempo_laws.takeover(self.died_s, self.sent))
        violations = [late for _, late in took if late is not None]
        violations += tempo_laws.one_leader(self.sent)
        violations += tempo_laws.on_downbeats(self.sent)
        for one in (*self.machines, *self.past):
            violations += tempo_laws.followed_once(one.name, one.followed)
        slowest_ms = max((one.frame.beat_ms for one in self.sent), default=4_000)
        counted = [one.counted for one in self.machines if one.counted and not one.is_candidate]
        for each in counted:
            violations += tempo_laws.goes_on(each, ended_s, slowest_ms)
        violations += self.readers.violations
        violations += [Violation("no_error", str(one)) for one in self.loop.problems]
        leads = [one for one in self.sent if one.frame.revision]
        tempi = [one.frame.tempo_bpm for one in leads]
        return TempoOutcome(
            seed=self.plan.seed,
            seconds=ended_s,
            beats=sum(each.beats for each in counted),
            terms=len({one.frame.revision for one in leads}),
            kills=len(took),
            takeover_beats_max=round(max((beats for beats, _ in took), default=0.0), 2),
            tempo_changes=sum(one != two for one, two in pairwise(tempi)),
            bars=self.readers.bars,
            bars_changed=self.readers.bars_changed,
            drift_pct=round(100 * max(map(tempo_laws.drift, counted), default=0.0), 3),
            faults=dict(self.faults),
            violations=violations,
            digest=blake3(repr((self.sent, counted)).encode()).hexdigest(),
        )


@contextmanager
def _opened_once() -> Iterator[None]:
    """Verify each frame once for all listeners: the signature is a pure function of its bytes."""
    really_open, known = BEAT_FRAMES.open, dict[bytes, Any]()
    age_ms = BEAT_FRAMES.max_age_ms or 0

    def open_once(payload: bytes, *, mesh: str, subject: str, now_ms: int) -> Any:
        opened = known.get(payload)
        if opened is None:
            opened = really_open(payload, mesh=mesh, subject=subject, now_ms=now_ms)
            if not isinstance(opened, Refused):
                known[payload] = opened
        elif abs(now_ms - opened.at_ms) > age_ms:
            return Refused.STALE
        return opened

    with patched(BEAT_FRAMES, "open", open_once):
        yield


def run(plan: TempoPlan) -> TempoOutcome:
    """Run one seed."""
    return TempoWorld(plan).run()
