"""A hostile member: one machine that writes what could do harm, and its tools.

It sees the whole log at once and gets every compare-and-set right; what it lacks is other
people's keys. `attacks.py` lists what it does with that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import CancelBody, CompleteBody, JobCancel
from antiphon.core.families.jobs.state import Job, JobLane, State
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest
from antiphon.core.record.op import Op
from antiphon.errors import AntiphonError
from antiphon.runtime.log.session import Session, dep_of
from antiphon.testing.host_clock import HostClock
from simulator.actors.machines import Machine, WatchedKeyring
from simulator.checks.plain_record import Key
from simulator.checks.referee import Referee
from simulator.cluster import Cluster
from simulator.hostile.false_proofs import vouched

PATIENCE_S: Final = 60.0
"""How long a deed waits for its chance."""

DEPS_SHARE: Final = 0.25
TRUE_SHARE: Final = 0.8
"""Of its ops, those that name another record; of these, those that name it rightly."""

Found = tuple[Key, JobLane, Job]
Where = Callable[[Job], bool]


def anything(_: Job) -> bool:
    """Any job will do."""
    return True


class HostileMember(Machine):
    """The hostile member."""

    is_honest = False

    def __init__(self, cluster: Cluster, name: str, *, clock: HostClock) -> None:
        """Idle until told."""
        super().__init__(cluster, name, clock=clock)
        self.session: Session | None = None
        self.chance = random.Random(f"{cluster.seed}/{name}/acts")
        self._serial = 0
        self.swallowed = self.buried = 0
        """Announcements that it acknowledged for nobody, and junk that it put on lanes, in bulk."""

    async def run(self) -> None:
        """Connect, then wait to be told."""
        self.session = self.connect()
        await self.session.sync_control()
        await asyncio.Event().wait()

    def act(self, deed: Deed) -> bool:
        """Begin a deed; False while there is no line."""
        if self.host is None or self.session is None:
            return False
        self.host.start(self._carry_out(deed))
        return True

    async def _carry_out(self, deed: Deed) -> None:
        try:
            await deed(self)
        except* (AntiphonError, TimeoutError):
            pass  # it lost a race, reached a limit, or the engine is unreachable: ignored

    @property
    def mesh(self) -> str:
        """The mesh that it harms."""
        return self.cluster.mesh

    @property
    def referee(self) -> Referee:
        """Where it sees everything."""
        return self.cluster.referee

    # --- tools ------------------------------------------------------------------------------

    def some_job(self, *states: State, where: Where = anything) -> Found | None:
        """A lane to do harm to."""
        found = [
            (key, lane, lane.job)
            for key, lane in self.cluster.referee.lanes.items()
            if lane.job is not None and (not states or lane.job.state in states) and where(lane.job)
        ]
        return self.chance.choice(found[-40:]) if found else None

    async def next_job(self, *states: State, where: Where = anything) -> Found | None:
        """A job that stands in one of these states, or comes to within a while."""
        found = self.some_job(*states, where=where) or await self._await_job(states, where)
        if found is not None and self.session is not None:
            self.session.author.observe(found[2].hlc)  # or its ops would only be stale
        return found

    async def _await_job(self, states: tuple[State, ...], where: Where) -> Found | None:
        found: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

        def look(key: Key, lane: JobLane) -> None:
            job = lane.job
            if job is not None and job.state in states and where(job) and not found.done():
                found.set_result((key, lane, job))

        self.referee.onlookers.append(look)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await found
        except TimeoutError:
            return None
        finally:
            self.referee.onlookers.remove(look)

    def now_ms(self) -> int:
        """The engine's own time: it knows what will be accepted."""
        return self.cluster.clock.now_ms()

    def op(  # noqa: PLR0913 - one argument per way in which an op can be false
        self,
        op_type: type[Op],
        body: Struct,
        *,
        prev: int,
        wall_ms: int = 0,
        author: str = "",
        auth: tuple[str, ...] | None = None,
        is_plain: bool = False,
    ) -> bytes:
        """A signed record, as honest or as false as its arguments.

        Unless told what to name as `auth`, it names the best chain that it has; unless it is
        plain, it may name other records, rightly or not.
        """
        if isinstance(body, CompleteBody):
            body = vouched(body, self.referee, self.keyring, self.chance)
        at = self.session.author.tick() if self.session else (self.now_ms(), 0)
        made: Any = op_type(
            v=1,
            mesh=self.cluster.mesh,
            author=author or self.keyring.did,
            hlc=(wall_ms, self._serial % 60_000) if wall_ms else at,
            prev=prev,
            deps=() if is_plain else self._some_deps(),
            auth=self._best_chain(op_type, body) if auth is None else auth,
            body=body,
        )
        self._serial += 1
        return sealed(made, self.keyring)

    def _best_chain(self, op_type: type[Op], body: Struct) -> tuple[str, ...]:
        control = self.referee.history.current
        if control is None:
            return ()
        return ChainChoice(self.keyring.did).choose(control, op_type, body, self.now_ms())

    def _some_deps(self) -> tuple[tuple[int, str], ...]:
        """Mostly none; else a true one, a false one, or one from the future."""
        if self.chance.random() > DEPS_SHARE:
            return ()
        seq = self.chance.randint(1, self.referee.log.last_seq + 1)
        stored = self.referee.log.at(seq)
        named = dep_of(PROTOCOL, stored).op_id if stored is not None else digest(b"")
        return ((seq, named if self.chance.random() < TRUE_SHARE else digest(b"else")),)

    async def put(self, subject: str, payload: bytes) -> int:
        """Store a record with the right compare-and-set, whatever is in it."""
        if self.engine is None:
            return 0
        self._serial += 1
        return await self.engine.log.append(
            subject,
            payload,
            message_id=f"mallory-{self._serial}",
            expected_last=self.tail(subject),
        )

    def tail(self, subject: str) -> int:
        """The last sequence on a subject."""
        return self.cluster.referee.tail(subject)

    def lane_subject(self, key: Key) -> str:
        """The subject of what happens to a job."""
        return job_subjects.job(self.cluster.mesh, *key)


Deed = Callable[[HostileMember], Awaitable[None]]


def sealed(op: Op, keyring: WatchedKeyring) -> bytes:
    """An op with a signature block."""
    op_bytes = codec.encode(op)
    block = signing.Block(sig=keyring.sign(signing.OP_TYPE, op_bytes))
    return signing.frame(op_bytes, block)


def two_faces(
    mesh: str, key: WatchedKeyring, at: tuple[int, int], chance: random.Random
) -> tuple[str, str]:
    """Two ops with one timestamp, signed with a copy of somebody's key."""
    copy = key.copied()
    bodies = [CancelBody(kind="doomed", job=chance.randbytes(32).hex()) for _ in range(2)]
    first, second = (
        JobCancel(v=1, mesh=mesh, author=key.did, hlc=at, prev=0, deps=(), auth=(), body=body)
        for body in bodies
    )
    return sealed(first, copy).decode(), sealed(second, copy).decode()
