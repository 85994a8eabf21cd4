"""One cluster from its founding to its rest: chaos, healing, audit.

    plan     what a seed means: how long, how many jobs, how many faults
    chaos    submitters call, workers answer, the adversary breaks things
    healing  everything is mended; whatever was called must end within a bound
    audit    verdicts, promises and replicas are compared

The run is a function of its plan. `run` returns what there is to say about it.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec import Struct

from antiphon.core import records
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import Unavailable
from antiphon.runtime import founding
from antiphon.runtime.keys import SeedKeyring
from antiphon.testing.simulation import story
from antiphon.testing.simulation.adversary import Adversary
from antiphon.testing.simulation.audit import Auditor
from antiphon.testing.simulation.facts import Key
from antiphon.testing.simulation.ground import EPOCH_MS, Ground
from antiphon.testing.simulation.hostile import Mallory
from antiphon.testing.simulation.laws import Violation
from antiphon.testing.simulation.machines import FullMachine, Machine, WorkerMachine
from antiphon.testing.simulation.network import Weather
from antiphon.testing.simulation.owner import RULES, OwnerMachine
from antiphon.testing.simulation.referee import Referee
from antiphon.testing.simulation.workload import KINDS, SubmitterMachine, Workload
from antiphon.testing.virtual_time import HostClock, new_loop

OUTSIDE: Final = ("antiphon.engines.memory",)
LOOK_S: Final = 5.0
"""How often healing looks whether all is quiet."""
HEALING_S: Final = 3600.0
"""What every wait of the runtime together may take once faults have stopped."""
CRYSTAL: Final = 1e-4
"""How much faster or slower than true time a machine's clocks run at most."""
REPERTOIRES: Final = (KINDS, KINDS, KINDS, (KINDS[0], KINDS[2]), (KINDS[1], KINDS[3]))
ROOMS: Final = "/dev/shm"  # noqa: S108 - memory-backed where there is such a thing


class Plan(Struct, frozen=True, kw_only=True):
    """What one seed runs."""

    seed: int
    chaos_s: float = 3300.0
    jobs_per_hour: float = 240.0
    faults_per_hour: float = 180.0
    stop_at_first: bool = False
    """End as soon as a law is broken: nobody wants the rest of a mutant's run."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What there is to say about a run."""

    seed: int
    seconds: float
    """Virtual seconds, healing included."""
    jobs: int
    ops: int
    runs: int
    faults: dict[str, int]
    verdicts: dict[str, int]
    violations: list[Violation]
    broken: int
    stories: list[str]
    digest: str


class World:
    """A cluster. Run it within `quiet_and_quick`."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Nothing runs before `run`."""
        self.plan = plan
        loop = new_loop(outside=OUTSIDE)
        clock = HostClock(loop, epoch_ms=EPOCH_MS)
        server = MemoryServer(clock)
        owner_key = SeedKeyring(hashlib.sha256(f"{plan.seed}/owner/key1".encode()).digest())
        self._foundation = founding.found(
            owner_key, clock, name=f"seed {plan.seed}", recovery=owner_key.did, rules=RULES
        )
        mesh = self._foundation.mesh
        referee = Referee(mesh, server.mesh(mesh, create=True).log)
        genesis = self._foundation.payload.partition(b"\n")[0]
        referee.signed(owner_key.did, genesis, is_honest=True)
        self.ground = Ground(
            seed=plan.seed,
            loop=loop,
            clock=clock,
            server=server,
            mesh=mesh,
            weather=Weather(),
            referee=referee,
        )
        jobs = round(plan.jobs_per_hour * plan.chaos_s / 3600)
        self.workload = Workload(self._chance("workload"), jobs=jobs, span_s=plan.chaos_s * 0.95)
        self._assemble(folder)

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.plan.seed}/{name}")

    def _assemble(self, folder: Path) -> None:
        ground, chance = self.ground, self._chance("clocks")

        def clock() -> HostClock:
            return HostClock(
                ground.loop,
                epoch_ms=EPOCH_MS,
                skew_ms=chance.uniform(-900.0, 900.0),
                rate=chance.uniform(-CRYSTAL, CRYSTAL),
            )

        self.full = [
            FullMachine(ground, "full-0", clock=clock(), replica_path=folder / "full-0.db"),
            FullMachine(ground, "full-1", clock=clock(), replica_path=folder / "full-1.db"),
        ]
        self.submitters = [
            SubmitterMachine(
                ground, f"caller-{side}", clock=clock(), workload=self.workload, side=side
            )
            for side in (0, 1)
        ]
        self.workers = []
        for at, kinds in enumerate(REPERTOIRES):
            name = f"worker-{at}"
            handlers = self.workload.handlers(ground.referee, name, kinds)
            self.workers.append(WorkerMachine(ground, name, clock=clock(), handlers=handlers))
        self.owner = OwnerMachine(ground, "owner", clock=HostClock(ground.loop, epoch_ms=EPOCH_MS))
        self.mallory = Mallory(ground, "mallory", clock=HostClock(ground.loop, epoch_ms=EPOCH_MS))
        self.adversary = Adversary(
            ground,
            self._chance("adversary"),
            machines=[*self.full, *self.submitters, *self.workers],
            owner=self.owner,
            mallory=self.mallory,
        )
        self._folder = folder

    @property
    def machines(self) -> list[Machine]:
        """All of them."""
        return [*self.full, *self.submitters, *self.workers, self.owner, self.mallory]

    # --- a run ------------------------------------------------------------------------------

    def run(self, story: Story | None = None) -> Outcome:
        """From the founding to the rest; with a story of one's own in place of the plan's."""
        loop = self.ground.loop
        try:
            loop.run_until_complete(self._life(story or World.unfold))
        finally:
            loop.close()
        return self._outcome()

    async def _life(self, story: Story) -> None:
        await founding.lay(MemoryEngine(self.ground.server, self.ground.mesh).log, self._foundation)
        try:
            await story(self)
        finally:
            for machine in self.machines:
                machine.kill()
            await self._bury()

    async def unfold(self) -> None:
        """The plan: chaos, healing, audit."""
        auditor = Auditor(self.ground)
        for machine in self.machines:
            machine.boot()
        chaos = asyncio.get_running_loop().create_task(
            self.adversary.run(span_s=self.plan.chaos_s, per_hour=self.plan.faults_per_hour)
        )
        await self._until(lambda: self.ground.loop.time() >= self.plan.chaos_s)
        chaos.cancel()
        self.ground.server.start()
        if not self._is_over:
            await auditor.restart_equals_replay(self.full)
        self.adversary.stop()
        self.owner.clear_routes()
        await self._until(self._is_quiet, within_s=HEALING_S)
        if not self._is_over:
            await self._audit(auditor)

    @property
    def _is_over(self) -> bool:
        return self.plan.stop_at_first and self.ground.referee.broken > 0

    async def _until(self, holds: Callable[[], bool], *, within_s: float = 1e9) -> None:
        """Let time pass until something holds, at most for so long."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s
        while not holds() and not self._is_over and loop.time() < end_s:  # noqa: ASYNC110 - free
            await asyncio.sleep(LOOK_S)

    def _is_quiet(self) -> bool:
        last = self.ground.referee.log.last_seq
        return (
            all(submitter.is_finished for submitter in self.submitters)
            and self.owner.is_idle
            and not self.ground.referee.open_jobs()
            and all(one.node is not None and one.node.applied >= last for one in self.full)
        )

    async def _audit(self, auditor: Auditor) -> None:
        auditor.every_job_ends()
        auditor.promises_kept(self.workload)
        for submitter in self.submitters:
            if not submitter.is_finished:
                self.ground.referee.accuse("calls_arrive", f"{submitter.name} never finished")
        await auditor.light_equals_full(self.full)
        await auditor.running_equals_replay(self.full)
        for problem in self.ground.loop.problems:
            error = problem.get("exception")
            if not isinstance(error, Unavailable):
                self.ground.referee.accuse("nobody_dies", f"{problem.get('message')}: {error!r}")

    async def _bury(self) -> None:
        """Let the tasks of dead machines end: nothing may be left to the garbage collector."""
        left: list[asyncio.Task[Any]] = []
        for _ in range(100):
            left = [task for host in self.ground.dead for task in host.alive]
            if not left:
                return
            await asyncio.sleep(1.0)
            for task in left:
                task.cancel()
        raise RuntimeError(f"{len(left)} tasks of dead machines do not end: {left[:3]}")

    # --- what there is to say ---------------------------------------------------------------

    def _outcome(self) -> Outcome:
        referee = self.ground.referee
        faults = Counter(self.adversary.counts)
        faults.update(self.ground.weather.counts)
        told: dict[Key, int] = {}
        for violation in referee.violations:
            if violation.key is not None and len(told) < 3:  # noqa: PLR2004 - enough to begin with
                told.setdefault(violation.key, violation.seq)
        return Outcome(
            seed=self.plan.seed,
            seconds=self.ground.loop.time(),
            jobs=sum(lane.job is not None for lane in referee.lanes.values()),
            ops=referee.log.last_seq,
            runs=self.workload.runs,
            faults=dict(sorted(faults.items())),
            verdicts=dict(sorted(referee.histogram.items())),
            violations=referee.violations,
            broken=referee.broken,
            stories=[self._story(key, seq) for key, seq in told.items()],
            digest=referee.digest,
        )

    def _story(self, key: Key, seq: int) -> str:
        log = self.ground.referee.log
        lane = []
        for at in range(1, log.last_seq + 1):
            record = log.at(at)
            if record is not None and record.subject.endswith(f".{key[0]}.{key[1]}"):
                lane.append((record, self.ground.referee.verdicts[at - 1]))
        names = {machine.keyring.did: machine.name for machine in self.machines}
        return story.tell(self.ground.mesh, key, lane, names, epoch_ms=EPOCH_MS, marked=seq)


Story = Callable[[World], Awaitable[None]]
"""What happens in a world once its mesh is founded; no machine runs yet."""


@contextmanager
def quiet_and_quick() -> Iterator[None]:
    """Silence the runtime's log lines, and open each record once instead of once per reader.

    Opening a record is a pure function of the record: remembering its result changes nothing but
    the time that a run takes.
    """
    before = structlog.get_config()
    opened: dict[tuple[str, int, int, str, bytes], records.Entry] = {}
    really_open = records.open_record

    def open_once(
        mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes
    ) -> records.Entry:
        key = (mesh, seq, commit_ms, subject, payload)
        entry = opened.get(key)
        if entry is None:
            entry = opened[key] = really_open(*key)
        return entry

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    records.open_record = open_once
    try:
        yield
    finally:
        records.open_record = really_open
        structlog.configure(**before)


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave cycles lie while a run lasts: collecting them costs a tenth of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()


def run(plan: Plan) -> Outcome:
    """Run one seed."""
    room = ROOMS if Path(ROOMS).is_dir() else None
    with (
        no_collector(),
        quiet_and_quick(),
        tempfile.TemporaryDirectory(prefix="antiphon-sim-", dir=room) as folder,
    ):
        return World(plan, Path(folder)).run()
