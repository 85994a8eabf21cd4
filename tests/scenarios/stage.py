"""Where a story is played: a mesh on one engine, its people, and three kinds of reader.

- *light*: a peer that was made for this one question. It reads the control ops and one lane.
- *live*: a full node that has followed the log since its first record, with its replica.
- *late*: a full node that comes when all is over and judges the whole log at once.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count

from antiphon.core.authority.control import Control
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.state import Job
from antiphon.core.families.jobs.table import standing
from antiphon.core.record.verdict import Verdict
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.nats import NatsEngine
from antiphon.ports import Engine
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import Author, NoMark
from antiphon.runtime.log.session import Session
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.services import beside
from antiphon.testing.engine_suite.harness import whole_lane
from tests.job_lanes import job_of
from tests.local_server import shared_server

LONGEST_WAIT_MS = 6_000
"""How far a story may move the clocks: a server is really waited for."""


def key_of(name: str) -> SeedKeyring:
    """The same key for the same name, on every mesh."""
    return SeedKeyring(hashlib.sha256(b"a person of the stories: " + name.encode()).digest())


def real_ms() -> int:
    return time.time_ns() // 1_000_000


class StoryClock:
    """Everybody's wall clock. `today` of the story is the moment at which it is made.

    On the memory engine it stands still between two steps, and commits are stamped by it. A
    server stamps by a clock of its own, so there it is the machine's.
    """

    def __init__(self, *, is_settable: bool) -> None:
        self.today_ms = real_ms()
        self._moved_ms = 0
        self._is_settable = is_settable

    def now_ms(self) -> int:
        return self.today_ms + self._moved_ms if self._is_settable else real_ms()

    def boot_s(self) -> float:
        return self.now_ms() / 1000

    def pass_a_moment(self) -> None:
        """What lies between two steps; on a server it passes by itself."""
        self._moved_ms += self._is_settable

    async def move(self, to_ms: int) -> None:
        """Go on to a time after `today`."""
        if not self._moved_ms < to_ms <= LONGEST_WAIT_MS:
            raise ValueError(f"clocks move on, and by {LONGEST_WAIT_MS} ms at most")
        self._moved_ms = to_ms
        if not self._is_settable:
            while real_ms() < self.today_ms + to_ms:
                await asyncio.sleep((self.today_ms + to_ms - real_ms()) / 1000)


class Stage:
    """One mesh. Made by `a_stage`."""

    def __init__(
        self, engine: str, clock: StoryClock, memory: MemoryServer, *, name: str, rules: Rules
    ) -> None:
        self.clock = clock
        self.entropy = SystemEntropy()
        self.signed_genesis = genesis.sign(
            key_of("owner"), clock, name=name, recovery=key_of("recovery").did, rules=rules
        )
        self.mesh = self.signed_genesis.mesh
        self.newest = 1
        """The last sequence on the log."""
        self.people: dict[str, Session] = {}
        self._engine_name = engine
        self._memory = memory
        self._numbers = count(1)
        self._stack = AsyncExitStack()
        self._hands: Engine
        self.live: FullNode
        self._late: tuple[Session, FullNode] | None = None

    async def open(self, cast: list[str]) -> None:
        """Found the mesh, let the people in, and begin to follow."""
        self._hands = await self._connect()
        await genesis.write(self._hands.log, self.signed_genesis)
        self.people = {name: self._session(self._hands, key_of(name)) for name in cast}
        self.live = await self._full_node()

    async def close(self) -> None:
        await self._stack.aclose()

    async def _connect(self) -> Engine:
        if self._engine_name == "memory":
            engine: Engine = MemoryEngine(self._memory, self.mesh)
        else:
            server = shared_server()
            engine = await NatsEngine.connect(
                server.url, self.mesh, login=server.login, create=True
            )
        self._stack.push_async_callback(engine.close)
        return engine

    def _session(self, engine: Engine, key: SeedKeyring) -> Session:
        author = Author(self.mesh, key, self.clock, max_drift_ms=2_000, mark=NoMark())
        return Session(engine, author, self.clock, self.entropy)

    async def _full_node(self) -> FullNode:
        replica = Replica(":memory:", mesh=self.mesh)
        self._stack.callback(replica.close)
        key = SeedKeyring(self.entropy.token(32))
        node = FullNode(self._session(await self._connect(), key), replica)
        await self._stack.enter_async_context(beside(node.run(), ready=node.ready))
        return node

    # --- writing ------------------------------------------------------------------------------

    async def tail(self, subject: str) -> int:
        """The last sequence on a subject."""
        found = await whole_lane(self._hands.log, [subject])
        return found[-1].seq if found else 0

    async def put(self, subject: str, payload: bytes) -> int:
        """Put any bytes on any subject, whatever they say of themselves."""
        self.newest = await self._hands.log.append(
            subject,
            payload,
            message_id=f"{self.mesh}-{next(self._numbers)}",
            expected_last=await self.tail(subject),
        )
        return self.newest

    # --- the readers --------------------------------------------------------------------------

    async def light(self) -> Session:
        """A peer that has just arrived, with all control ops read."""
        session = self._session(self._hands, SeedKeyring(self.entropy.token(32)))
        await session.confirm(self.newest)
        return session

    async def verdicts(self, seq: int, subject: str) -> dict[str, Verdict]:
        """What is said of a record that was just committed."""
        light = await light_verdict(await self.light(), seq, subject)
        await self.live.reached(seq)
        return {"light": light, "live": full_verdict(self.live, seq)}

    async def hindsight(self, seq: int, subject: str) -> dict[str, Verdict]:
        """What is said of a record by those who come when all is over."""
        if self._late is None:
            self._late = (await self.light(), await self._full_node())
        session, node = self._late
        return {
            "light, late": await light_verdict(session, seq, subject),
            "late": full_verdict(node, seq),
        }

    async def control(self) -> dict[str, Control]:
        """What holds for the whole mesh, as each reader sees it."""
        await self.live.reached(self.newest)
        return {"light": (await self.light()).control, "live": self.live.session.control}

    async def coordinators(self) -> dict[str, list[str]]:
        """Who was coordinator, one after the other, at every place of the log."""
        await self.live.reached(self.newest)
        turns: dict[str, list[str]] = {}
        for reader, session in {"light": await self.light(), "live": self.live.session}.items():
            turns[reader] = []
            for seq in range(2, self.newest + 2):
                control = session.history.at(seq, session.wall.now_ms())
                assert control is not None, "from genesis on there is always one"
                if control.coordinator not in turns[reader][-1:]:
                    turns[reader].append(control.coordinator)
        return turns

    async def job(self, kind: str, job: str) -> dict[str, Job | None]:
        """A job as it stands behind the last record, as each reader sees it."""
        await self.live.reached(self.newest)
        session = await self.light()
        seen = (await session.read_lane(kind, job)).lane.job
        stored = self.live.replica.ask(ReplicaJobs).job(kind, job)
        return {
            "light": standing(session.control, seen, self.newest + 1),
            "live": standing(self.live.session.control, stored, self.newest + 1),
        }


async def light_verdict(session: Session, seq: int, subject: str) -> Verdict:
    """A light reader's verdict, from one lane or from the control ops alone."""
    lane = job_of(subject)
    if lane is None:
        return session.control_verdicts[seq]
    view = await session.read_lane(*lane, at_least=seq)
    return next(one.verdict for one in view.history if one.opened.seq == seq)


def full_verdict(node: FullNode, seq: int) -> Verdict:
    """What a full node has in its replica."""
    stored = node.replica.record(seq)
    assert stored is not None, f"the replica lacks record {seq}"
    return stored.verdict


@asynccontextmanager
async def a_stage(
    engine: str,
    clock: StoryClock,
    memory: MemoryServer,
    cast: list[str],
    *,
    name: str,
    rules: Rules,
) -> AsyncIterator[Stage]:
    stage = Stage(engine, clock, memory, name=name, rules=rules)
    try:
        await stage.open(cast)
        yield stage
    finally:
        await stage.close()
