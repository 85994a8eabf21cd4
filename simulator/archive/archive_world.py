"""A simulated log on which days pass: lanes end, are archived, purged, and begin again.

The real sessions and core on the memory engine, in virtual time. At each step somebody submits or
ends a job, takes a lock, writes a document, derives a tick (again), or time passes; the coordinator
archives; a purge request is made, and the next one perhaps much later; an adversary commits again
any bytes that were ever on the log, or junk. Between the steps newcomers and readers that knew
lanes earlier read them, and what they find is held against the laws (`archive_laws`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

from blake3 import blake3
from msgspec import Struct

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.derivations import purge_plan
from antiphon.core.derivations.purge_plan import OldLane, Purge
from antiphon.core.families.jobs.derivation import Cron, Tick
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobSchedule, ScheduleBody
from antiphon.core.families.jobs.planned import PlanBody, derived_body
from antiphon.core.families.jobs.state import job_key
from antiphon.core.families.locks.ops import LockRelease, LockTake, ReleaseBody, TakeBody
from antiphon.core.families.locks.state import Lock, lock_key
from antiphon.core.families.mesh.ops import (
    ArchiveBody,
    CoordinatorBody,
    MeshArchive,
    MeshCoordinator,
)
from antiphon.core.families.plans.ops import PlanPut
from antiphon.core.families.plans.state import Plan, plan_key
from antiphon.core.record.branches import LaneKey
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import AntiphonError
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.testing.host_clock import HostClock, SeededEntropy
from antiphon.testing.virtual_time import VirtualLoop, new_loop
from simulator.archive.archive_laws import ArchiveLaws
from simulator.speedups import no_collector, quiet_and_quick

EPOCH_MS: Final = 1_700_000_000_000
HOUR_MS: Final = 3_600_000
RULES: Final = Rules(
    authority="open",
    retention_ms=HOUR_MS,
    horizon_ms=6 * HOUR_MS,
    start_by_ms=6 * HOUR_MS,
    max_drift_ms=2_000,
)
KIND: Final = "build.image"
SCOPE: Final = "edits"
PLAN: Final = "hourly"
RETURNS: Final = 0.08
"""How often the reader comes back that knew some lanes."""
NAMES_A_RECORD: Final = 0.2
"""How many submitted jobs depend on some record."""
READ_EACH: Final = 3
"""Lanes that a newcomer reads after each step."""


class ArchivePlan(Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    steps: int = 150


class ArchiveOutcome(Struct, frozen=True, kw_only=True):
    """What was seen."""

    seed: int
    violations: list[str]
    deeds: dict[str, int]
    archives: int
    purged: int
    """Records that are gone."""
    lives: int
    """Lanes that began again after they were archived."""
    joined: int
    """Full nodes that began, or came back, and were compared."""
    erased: int
    """Records whose bytes nodes removed, since their job was forgotten."""
    hours: float
    digest: str
    """Of every record and of what was done: the same world has the same one."""


class ArchiveWorld:
    """One mesh, its members, and an adversary."""

    def __init__(self, plan: ArchivePlan, loop: VirtualLoop) -> None:
        """Nothing has happened."""
        self.plan, self.loop = plan, loop
        self.chance = random.Random(f"archive/{plan.seed}")
        self.clock = HostClock(loop, epoch_ms=EPOCH_MS)
        self.server = MemoryServer(self.clock)
        self.keys = [SeedKeyring(self.chance.randbytes(32)) for _ in range(3)]
        self.signed = genesis.sign(
            self.keys[0], self.clock, name="archive", recovery=self.keys[0].did, rules=RULES
        )
        self.mesh = self.signed.mesh
        self.laws = ArchiveLaws(self.mesh)
        self.store = self.server.mesh(self.mesh, create=True).log
        announce = self.store.announce

        def committed(record: Any, head: str) -> None:
            self.laws.committed(record)
            announce(record, head)

        self.store.announce = committed
        self.deeds: Counter[str] = Counter()
        self.purged = self.joined = self.erased = 0
        self.known: dict[LaneKey, Any] = {}
        """Lanes as one reader knew them some time ago."""

    def session(self, at: int) -> Session:
        """A member's."""
        author = Author(self.mesh, self.keys[at], self.clock, max_drift_ms=2_000, mark=NoMark())
        engine = MemoryEngine(self.server, self.mesh)
        return Session(engine, author, self.clock, SeededEntropy(f"{self.plan.seed}/{at}"))

    async def live(self) -> ArchiveOutcome:
        """All steps."""
        await genesis.write(MemoryEngine(self.server, self.mesh).log, self.signed)
        self.members = [self.session(at) for at in range(3)]
        self.veteran = self.session(1)
        for one in (*self.members, self.veteran):
            await one.sync_control()
        await self._put_plan()
        await self._begin()
        deeds = self._menu()
        for _ in range(self.plan.steps):
            (deed,) = self.chance.choices([one for _, one in deeds], [w for w, _ in deeds])
            self.deeds[deed.__name__.strip("_")] += 1
            try:
                await deed()
            except AntiphonError:
                self.deeds["refused"] += 1
            await self._look()
            if self.laws.violations:
                break
        await self._end_all()
        lives = sum(lane.floor > 0 and lane.state is not None for lane in self.laws.lanes.values())
        return ArchiveOutcome(
            seed=self.plan.seed,
            violations=self.laws.violations,
            deeds=dict(self.deeds),
            archives=len(self.laws.control.archives),
            purged=self.purged,
            lives=lives,
            joined=self.joined,
            erased=self.erased,
            hours=self.loop.time() / 3600,
            digest=self._digest(),
        )

    def _digest(self) -> str:
        digest = blake3(repr(self.deeds).encode())
        for record in self.laws.records.values():
            digest.update(f"{record.seq} {record.commit_ms} {record.subject} ".encode())
            digest.update(record.payload)
        return digest.hexdigest()

    async def _begin(self) -> None:
        """Before the first step."""

    async def _end_all(self) -> None:
        """After the last."""

    def _menu(self) -> list[tuple[int, Callable[[], Awaitable[object]]]]:
        """What may happen in a step, each with its weight."""
        return [
            (6, self._submit),
            (6, self._end),
            (2, self._lock),
            (5, self._tick),
            (5, self._wait),
            (4, self._archive),
            (8, self._purge),
            (5, self._replay),
            (2, self._junk),
            (2, self._remember),
            (1, self._hand_over),
        ]

    # --- deeds ------------------------------------------------------------------------------

    async def _write(self, at: int, intent: Intent) -> None:
        await self.members[at].sync_control()
        await write_one(self.members[at], intent)

    def _job(self) -> manifest.Manifest:
        number = self.chance.randrange(4)
        content = manifest.author({"command": ["true", f"{number}"], "timeout": 30})
        origin = self.chance.choice(["random", "random", "random", "key", ""])
        nonce = f"{number:032x}"
        return manifest.with_nonce(content, nonce, origin) if origin else content  # type: ignore[arg-type]

    async def _submit(self) -> None:
        body = ScheduleBody(
            kind=KIND,
            manifest=self._job(),
            priority=self.chance.choice(["high", "normal"]),
        )
        key = job_key(KIND, manifest.job_id(body.manifest))
        deps: tuple[tuple[int, str], ...] = ()
        if self.chance.random() < NAMES_A_RECORD and self.laws.on:
            seq = self.chance.choice([seqs[0] for seqs in self.laws.on.values()])
            deps = (self.laws.dep(seq),)
        lane = (await self.members[1].read(key)).lane
        await self._write(1, Intent(JobSchedule, body, lane, deps=deps))

    async def _end(self) -> None:
        open_ = [
            key
            for key in self.laws.lanes
            if key.family == "jobs"
            and (job := self.laws.lane(key).state) is not None
            and not job.is_terminal
        ]
        if open_:
            key = self.chance.choice(open_)
            lane = (await self.members[0].read(key)).lane
            body = CancelBody(kind=key.kind, job=key.name)
            await self._write(0, Intent(JobCancel, body, lane))

    async def _lock(self) -> None:
        key = lock_key(SCOPE, "door")
        view = await self.members[2].read(key)
        lock = view.lane.state
        if isinstance(lock, Lock) and lock.hold is not None and self.chance.random() < 0.4:
            give = ReleaseBody(kind=SCOPE, key="door", agent="main", fence=lock.hold.fence)
            await self._write(2, Intent(LockRelease, give, view.lane))
            return
        ttl_ms = self.chance.choice([10_000, HOUR_MS])
        body = TakeBody(kind=SCOPE, key="door", agent="main", ttl_ms=ttl_ms)
        await self._write(2, Intent(LockTake, body, view.lane))

    async def _put_plan(self) -> None:
        content = manifest.author({"command": ["true"], "timeout": 30})
        body = PlanBody(
            kind=KIND, manifest=content, name=PLAN, trigger=Cron(at="0 * * * *", zone="UTC")
        )
        lane = (await self.members[1].read(plan_key(KIND, PLAN))).lane
        await self._write(1, Intent(PlanPut, body, lane))

    async def _tick(self) -> None:
        """A coordinator that has forgotten what it derived."""
        plan = self.laws.lane(plan_key(KIND, PLAN)).state
        if not isinstance(plan, Plan):
            return
        hours = self.clock.now_ms() // HOUR_MS - self.chance.randrange(3)
        derived = Tick(tick_ms=hours * HOUR_MS)
        body = derived_body(plan.body, plan.op_id, derived)
        key = job_key(KIND, manifest.job_id(body.manifest))
        office = self._office()
        lane = (await self.members[office].read(key)).lane
        deps = ((plan.put_seq, plan.op_id),)
        await self._write(office, Intent(JobSchedule, body, lane, deps=deps))

    def _office(self) -> int:
        dids = [key.did for key in self.keys]
        return dids.index(self.laws.control.coordinator)

    async def _hand_over(self) -> None:
        node = self.keys[self.chance.randrange(2)].did
        await self._write(0, Intent(MeshCoordinator, CoordinatorBody(node=node)))

    async def _wait(self) -> None:
        await asyncio.sleep(self.chance.choice([60, 1_800, 2_700, 4_000, 8_000, 30_000]))

    async def _archive(self) -> None:
        now_ms, last = self.clock.now_ms() - 100, self.laws.control.archive
        body = ArchiveBody(
            before=max(last.before_ms, now_ms - RULES.retention_ms),
            memo_before=max(last.memo_before_ms, now_ms - RULES.horizon_ms),
        )
        await self._write(self._office(), Intent(MeshArchive, body))

    async def _purge(self) -> None:
        """One request of those that are due; the rest perhaps much later."""
        steps = [due[0] for kind in self._old() if (due := self._purges(*kind))]
        if steps:
            step = self.chance.choice(steps)
            await self.members[0].log.purge(step.subject, upto=step.upto)
            self.purged += 1

    def _old(self) -> list[tuple[str, str]]:
        return sorted({(key.family, key.kind) for key in self.laws.on})

    def _purges(self, family: str, kind: str) -> list[Purge]:
        found, below = self.laws.history.protocol.family(family), self.laws.control.archive.seq
        if found.is_asked_again is None or not below:
            return []
        lanes = [
            OldLane(key.name, old[0], old[-1], self.is_gone(key))
            for key, seqs in self.laws.on.items()
            if (key.family, key.kind) == (family, kind)
            if (old := self._there(seqs, below))
        ]
        return purge_plan.purges(self.mesh, found, kind, lanes, below=below)

    def _there(self, seqs: list[int], below: int) -> list[int]:
        return [seq for seq in seqs if seq < below and self.store.at(seq) is not None]

    def is_gone(self, key: LaneKey) -> bool:
        """Archived, and no lane that is still there names it."""
        lane = self.laws.lane(key)
        below = self.laws.control.archive.seq if lane.state is None else lane.floor
        old = self._there(self.laws.on[key], self.laws.control.archive.seq)
        before_ms = self.laws.control.archive.before_ms
        if any(seq >= below or self.laws.records[seq].commit_ms > before_ms for seq in old):
            return False  # in use, or an op may still depend on one of its records
        return not any(self._is_there(one) for one in self.laws.names.get(key, ()) if one != key)

    def _is_there(self, key: LaneKey) -> bool:
        return any(self.store.at(seq) is not None for seq in self.laws.on[key])

    async def _replay(self) -> None:
        """The adversary commits again what was once on the log."""
        old = [one for one in self.laws.records.values() if ".ctl." not in one.subject]
        if old:
            record = self.chance.choice(old)
            await self._append(record.subject, record.payload)

    async def _junk(self) -> None:
        if self.laws.on:
            key = self.chance.choice(list(self.laws.on))
            (*_, subject) = self.laws.history.protocol.subjects_of(self.mesh, key)
            await self._append(subject, b"junk")

    async def _append(self, subject: str, payload: bytes) -> None:
        last = 0
        async for page in self.members[0].log.read_lane([subject]):
            last = page[-1].seq
        await self.members[0].log.append(
            subject, payload, message_id=self.chance.randbytes(8).hex(), expected_last=last
        )

    # --- readers ----------------------------------------------------------------------------

    async def _remember(self) -> None:
        keys = [key for key in self._read_by_itself() if key.family != "plans"]
        for key in self.chance.sample(keys, min(4, len(keys))):
            self.known[key] = (await self.veteran.read(key)).lane

    def _read_by_itself(self) -> list[LaneKey]:
        """Lanes that somebody reads alone. Seals are not: each is judged by what it says itself."""
        return [key for key in self.laws.lanes if key.family != "seals"]

    async def _look(self) -> None:
        newcomer = self.session(2)
        if self.chance.random() < 0.5:
            await newcomer.sync_control()
        keys = self._read_by_itself()
        for key in self.chance.sample(keys, min(READ_EACH, len(keys))):
            await newcomer.sync_control()
            self.laws.read("a newcomer", key, await newcomer.read(key))
        if self.known and self.chance.random() < RETURNS:
            await self.veteran.sync_control()
            for key, view in (await self.veteran.read_on(self.known)).items():
                self.laws.read("who knew it before", key, view)
                self.known[key] = view.lane


def run(plan: ArchivePlan, world: type[ArchiveWorld] = ArchiveWorld) -> ArchiveOutcome:
    """One seed."""
    with no_collector(), quiet_and_quick():
        loop = new_loop()
        try:
            outcome: ArchiveOutcome = loop.run_until_complete(world(plan, loop).live())
            return outcome
        finally:
            loop.close()
