"""One simulated cluster, from its creation to the end: faults, healing, audit.

    plan     what a seed means: how long, how many jobs, how many faults
    chaos    submitters call, workers answer, the adversary breaks things
    healing  everything is mended; whatever was called must end within a bound
    audit    verdicts, promises and replicas are compared

The run is a function of its plan. `run` returns what there is to say about it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from antiphon.core.protocol import PROTOCOL
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import Unavailable
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import new_loop
from simulator.actors.guests import Guest
from simulator.actors.machines import FullMachine, Machine, WorkerMachine
from simulator.actors.owner import Scribe
from simulator.actors.people import PersonMachine
from simulator.actors.workload import KINDS, SubmitterMachine, Workload
from simulator.checks.plain_record import Key
from simulator.checks.referee import Referee
from simulator.cluster import EPOCH_MS, Cluster
from simulator.hostile.attacks import false_seal
from simulator.hostile.hostile_member import HostileMember
from simulator.hostile.starvation import unquenchable
from simulator.network import Weather
from simulator.seeds import lane_story
from simulator.seeds.fault_schedule import FaultSchedule
from simulator.seeds.final_audit import Auditor, unfinished
from simulator.seeds.grant_plan import GrantPlan
from simulator.seeds.punctuality import Punctuality
from simulator.seeds.seed_plan import Outcome, Plan
from simulator.speedups import no_collector, quiet_and_quick

OUTSIDE: Final = ("antiphon.engines.memory",)
LOOK_S: Final = 5.0
"""How often healing looks whether all is quiet."""
HEALING_S: Final = 3600.0
"""What every wait of the runtime together may take once faults have stopped."""
SUCCESSION_S: Final = 600.0
"""What it may take until a new owner that was named is the owner."""
RECOVERED: Final = 0.35
"""Chained worlds that lose their owner."""
BROKER_INHERITS: Final = 0.3
"""Of these, those in which a middle-man becomes the owner."""
FORBIDDEN: Final = 0.4
"""Chained worlds in which, towards the end, nobody may claim one of the kinds any more."""
FORBIDDEN_AT: Final = 0.85
MISPLACED: Final = 0.3
"""Worlds in which the hostile member is the coordinator for a while."""
MISPLACED_S: Final = 400.0
FALSE_SEALS_AT: Final = (0.3, 0.5, 0.7)
THIRSTY: Final = 0.25
"""Worlds in which, when all else is mended, somebody still swallows every announcement."""
CRYSTAL: Final = 1e-4
"""How much faster or slower than true time a machine's clocks run at most."""
KINDS_OF_WORKERS: Final = (KINDS, KINDS, KINDS, (KINDS[0], KINDS[2]), (KINDS[1], KINDS[3]))
ROOMS: Final = "/dev/shm"  # noqa: S108 - memory-backed where there is such a thing


class World:
    """A cluster. Run it within `quiet_and_quick`."""

    def __init__(self, plan: Plan, folder: Path, guests: Sequence[Guest] = ()) -> None:
        """Nothing runs before `run`."""
        self.plan = plan
        known = {family.name for family in PROTOCOL.families}
        new = [guest.family for guest in guests if guest.family.name not in known]
        protocol = PROTOCOL.adding(*new) if new else PROTOCOL
        loop = new_loop(outside=OUTSIDE)
        clock = HostClock(loop, epoch_ms=EPOCH_MS)
        server = MemoryServer(clock)
        owner_key, vault_key = (
            SeedKeyring(hashlib.sha256(f"{plan.seed}/{name}/key1".encode()).digest())
            for name in ("owner", "vault")
        )
        self._signed_genesis = genesis.sign(
            owner_key,
            clock,
            name=f"seed {plan.seed}",
            recovery=vault_key.did,
            rules=plan.rules,
        )
        mesh = self._signed_genesis.mesh
        referee = Referee(
            mesh,
            server.mesh(mesh, create=True).log,
            protocol,
            homes={guest.prefix: guest.home for guest in guests},
            guest_laws={guest.prefix: guest.laws for guest in guests},
        )
        first_op = self._signed_genesis.payload.partition(b"\n")[0]
        referee.signed(owner_key.did, first_op, is_honest=True)
        self.cluster = Cluster(
            seed=plan.seed,
            loop=loop,
            clock=clock,
            server=server,
            mesh=mesh,
            protocol=protocol,
            weather=Weather(),
            referee=referee,
        )
        jobs = round(plan.jobs_per_hour * plan.chaos_s / 3600)
        self.workload = Workload(self._chance("workload"), jobs=jobs, span_s=plan.chaos_s * 0.95)
        self.workload.add_bursts(
            self._chance("bursts"), bursts=plan.bursts, span_s=plan.chaos_s * 0.95
        )
        self.workload.has_steps = plan.has_steps
        self.workload.has_questions = plan.has_questions
        self._assemble(folder, guests)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{name}")

    def _assemble(self, folder: Path, guests: Sequence[Guest]) -> None:
        cluster, chance = self.cluster, self._chance("clocks")

        def clock() -> HostClock:
            return HostClock(
                cluster.loop,
                epoch_ms=EPOCH_MS,
                skew_ms=chance.uniform(-900.0, 900.0),
                rate=chance.uniform(-CRYSTAL, CRYSTAL),
            )

        self.full = [
            FullMachine(cluster, "full-0", clock=clock(), replica_path=folder / "full-0.db"),
            FullMachine(cluster, "full-1", clock=clock(), replica_path=folder / "full-1.db"),
        ]
        self.submitters = [
            SubmitterMachine(
                cluster, f"caller-{side}", clock=clock(), workload=self.workload, side=side
            )
            for side in (0, 1)
        ]
        self.workers = []
        for at, kinds in enumerate(KINDS_OF_WORKERS):
            name = f"worker-{at}"
            handlers = self.workload.handlers(cluster.referee, name, kinds)
            self.workers.append(WorkerMachine(cluster, name, clock=clock(), handlers=handlers))
        self.brokers = []
        if self.plan.is_chained:
            self.brokers = [self._scribe(f"broker-{at}", clock()) for at in (0, 1)]
        self.owner, self.heir, self.vault = (
            self._scribe(name, HostClock(cluster.loop, epoch_ms=EPOCH_MS))
            for name in ("owner", "heir", "vault")
        )
        self.owner.mark.wall_ms = EPOCH_MS  # its key has signed the genesis
        self.hostile_member = HostileMember(
            cluster, "mallory", clock=HostClock(cluster.loop, epoch_ms=EPOCH_MS)
        )
        self.guests = [guest.machine(cluster, clock()) for guest in guests]
        names = ("person-0", "person-1") if self.plan.has_questions else ()
        self.people = [PersonMachine(cluster, name, clock=clock()) for name in names]
        common: list[Machine] = [*self.full, *self.submitters, *self.workers, *self.guests]
        common += self.people
        self.grant_plan = GrantPlan(
            cluster,
            self._chance("charter"),
            is_chained=self.plan.is_chained,
            scribes=[self.owner, self.heir, *self.brokers],
            brokers=self.brokers,
            machines=common,
            hostile_member=self.hostile_member,
        )
        self.adversary = FaultSchedule(
            cluster,
            self._chance("adversary"),
            machines=[*common, *self.brokers],
            grant_plan=self.grant_plan,
            hostile_member=self.hostile_member,
            stress=self.plan.stress,
            has_steps=self.plan.has_steps,
            is_audited=self.plan.is_audited,
            has_questions=self.plan.has_questions,
        )
        self._healing_s = 0.0

    def _scribe(self, name: str, clock: HostClock) -> Scribe:
        return Scribe(self.cluster, name, clock=clock, rules=self.plan.rules)

    @property
    def machines(self) -> list[Machine]:
        """All that run from the beginning."""
        people = [self.owner, *self.brokers, self.hostile_member]
        own = [*self.full, *self.submitters, *self.workers, *self.guests, *self.people]
        return [*own, *people]

    # --- a run ------------------------------------------------------------------------------

    def run(self, story: Story | None = None) -> Outcome:
        """From the founding to the rest; with a story of one's own in place of the plan's."""
        loop = self.cluster.loop
        try:
            loop.run_until_complete(self._life(story or World.unfold))
        finally:
            loop.close()
        return self._outcome()

    async def _life(self, story: Story) -> None:
        await genesis.write(
            MemoryEngine(self.cluster.server, self.cluster.mesh).log, self._signed_genesis
        )
        try:
            await story(self)
        finally:
            for machine in (*self.machines, self.heir, self.vault):
                machine.kill()
            await self._bury()

    async def unfold(self) -> None:
        """The plan: chaos, healing, audit."""
        with closing(Auditor(self.cluster)) as auditor:
            await self._follow_plan(auditor)

    async def _follow_plan(self, auditor: Auditor) -> None:
        self.submitters[0].has_plans = self.plan.has_plans
        for machine in self.machines:
            machine.boot()
        self.grant_plan.begin()
        self._name_coordinator(self.full[0])
        loop = asyncio.get_running_loop()
        faults = loop.create_task(
            self.adversary.run(span_s=self.plan.chaos_s, per_hour=self.plan.faults_per_hour)
        )
        self._plan_turns(loop)
        punctuality = loop.create_task(Punctuality(self.cluster, self.full).run())
        await self._until(lambda: loop.time() >= self.plan.chaos_s)
        faults.cancel()
        self.cluster.server.start()
        if not self._is_over:
            await auditor.restart_equals_replay(self.full)
        self.adversary.stop()
        is_thirsty = self._chance("thirst").random() < THIRSTY
        if is_thirsty or unquenchable.__name__ in self.plan.stress:
            self._let_drink(loop)
        await self._until(lambda: not self.grant_plan.is_recovering, within_s=SUCCESSION_S)
        self.grant_plan.restore()
        self._name_coordinator(self.full[0])
        for guest in self.guests:
            guest.come_to_rest()
        began_s = loop.time()
        await self._until(self._is_quiet, within_s=HEALING_S)
        self._healing_s = loop.time() - began_s
        punctuality.cancel()
        if not self._is_over:
            await self._audit(auditor)

    def _plan_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        """What happens at most once: a lost owner's key, a kind that nobody may claim any more."""
        chance, span_s = self._chance("turns"), self.plan.chaos_s
        lost_at_s, kind = chance.uniform(0.1, 0.8) * span_s, chance.choice(KINDS)
        is_broker_next = chance.random() < BROKER_INHERITS
        if self.plan.is_chained and chance.random() < RECOVERED:
            heir = self.brokers[0] if is_broker_next else self.heir
            loop.call_later(lost_at_s, self.adversary.recovery, self.vault, heir)
        if self.plan.is_chained and chance.random() < FORBIDDEN:
            loop.call_later(FORBIDDEN_AT * span_s, self.grant_plan.forbid, kind)
        if chance.random() < MISPLACED or false_seal.__name__ in self.plan.stress:
            begins_s, term_s = chance.uniform(0.2, 0.6) * span_s, min(MISPLACED_S, span_s / 3)
            loop.call_later(begins_s, self._name_coordinator, self.hostile_member)
            for part in FALSE_SEALS_AT:
                loop.call_later(begins_s + part * term_s, self.hostile_member.act, false_seal)
            loop.call_later(begins_s + term_s, self._name_coordinator, self.full[1])

    def _let_drink(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the hostile member back: what was called must end all the same."""
        self.adversary.counts["hostile unquenchable"] += 1
        self.hostile_member.boot()
        loop.call_later(1.0, self.hostile_member.act, unquenchable)

    def _name_coordinator(self, machine: Machine) -> None:
        self.grant_plan.owner.coordinate(machine.keyring.did)

    @property
    def _is_over(self) -> bool:
        return self.plan.stop_at_first and self.cluster.referee.broken > 0

    async def _until(self, holds: Callable[[], bool], *, within_s: float = 1e9) -> None:
        """Let time pass until something holds, at most for so long."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not holds() and not self._is_over and loop.time() < end_s:
            await asyncio.sleep(LOOK_S)

    def _is_quiet(self) -> bool:
        last = self.cluster.referee.log.last_seq
        return (
            all(submitter.is_finished for submitter in self.submitters)
            and all(guest.is_at_rest for guest in self.guests)
            and self.grant_plan.is_idle
            and not unfinished(self.cluster, self.workers)
            and self.cluster.referee.is_sealed
            and all(one.node is not None and one.node.applied >= last for one in self.full)
        )

    async def _audit(self, auditor: Auditor) -> None:
        auditor.every_job_ends(self.workers)
        auditor.promises_kept(self.workload)
        for submitter in self.submitters:
            if not submitter.is_finished:
                self.cluster.referee.accuse("calls_arrive", f"{submitter.name} never finished")
        for guest in self.guests:
            if not guest.is_at_rest:
                self.cluster.referee.accuse("guests_finish", f"{guest.name} never finished")
        auditor.seals_are_true()
        await auditor.light_equals_full(self.full)
        await auditor.running_equals_replay(self.full)
        for problem in self.cluster.loop.problems:
            error = problem.get("exception")
            if not isinstance(error, Unavailable):
                self.cluster.referee.accuse("nobody_dies", f"{problem.get('message')}: {error!r}")

    async def _bury(self) -> None:
        """Let the tasks of dead machines end: nothing may be left to the garbage collector."""
        left: list[asyncio.Task[Any]] = []
        for _ in range(100):
            left = [task for host in self.cluster.dead for task in host.alive]
            if not left:
                return
            await asyncio.sleep(1.0)
            for task in left:
                task.cancel()
        raise RuntimeError(f"{len(left)} tasks of dead machines do not end: {left[:3]}")

    # --- what there is to say ---------------------------------------------------------------

    def _outcome(self) -> Outcome:
        referee = self.cluster.referee
        faults = Counter(self.adversary.counts)
        faults.update(self.cluster.weather.counts)
        in_bulk = {
            "announcement swallowed": self.hostile_member.swallowed,
            "junk record": self.hostile_member.buried,
        }
        faults.update({name: count for name, count in in_bulk.items() if count})
        told: dict[Key, int] = {}
        for violation in referee.violations:
            if violation.key is not None and len(told) < 3:
                told.setdefault(violation.key, violation.seq)
        return Outcome(
            seed=self.plan.seed,
            seconds=self.cluster.loop.time(),
            jobs=sum(lane.job is not None for lane in referee.lanes.values()),
            ops=referee.log.last_seq,
            runs=self.workload.runs,
            faults=dict(sorted(faults.items())),
            verdicts=dict(sorted(referee.histogram.items())),
            violations=referee.violations,
            broken=referee.broken,
            stories=[self._story(key, seq) for key, seq in told.items()],
            digest=referee.digest,
            is_chained=self.plan.is_chained,
            grants=len(referee.ledger.authority_model.grants),
            revocations=referee.ledger.authority_model.revocations,
            seals=referee.sealed,
            left_open=len(referee.open_jobs()),
            healing_s=self._healing_s,
        )

    def _story(self, key: Key, seq: int) -> str:
        log, lane = self.cluster.referee.log, []
        for at, verdict in enumerate(self.cluster.referee.verdicts, start=1):
            record = log.at(at)
            if record is not None and record.subject.endswith(f".{key[0]}.{key[1]}"):
                lane.append((record, verdict))
        names = {machine.keyring.did: machine.name for machine in self.machines}
        return lane_story.tell(self.cluster.mesh, key, lane, names, epoch_ms=EPOCH_MS, marked=seq)


Story = Callable[[World], Awaitable[None]]
"""What happens in a world once its mesh is founded; no machine runs yet."""


def run(plan: Plan, guests: Sequence[Guest] = ()) -> Outcome:
    """Run one seed, with further families if there are any."""
    room = ROOMS if Path(ROOMS).is_dir() else None
    with (
        no_collector(),
        quiet_and_quick(),
        tempfile.TemporaryDirectory(prefix="antiphon-sim-", dir=room) as folder,
    ):
        return World(plan, Path(folder), guests).run()
