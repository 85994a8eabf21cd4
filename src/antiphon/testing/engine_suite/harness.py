"""What the suite needs from an engine under test, and the helpers of its tests.

A test enters `self.site()`, gets a mesh that nobody else uses, connects as often as it likes, and
everything is closed behind it. Nothing here needs pytest: a test is a coroutine that asserts.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import ClassVar, Protocol, TypeVar

from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.priority import Priority
from antiphon.core.record import subjects
from antiphon.errors import AntiphonError, Unavailable
from antiphon.ports import Delivery, Engine, OpLog, Record, WorkQueue

T = TypeVar("T")

WITHIN_S = 60.0
"""How long the suite waits for what must happen. Generous: it only costs when a test fails."""
_AT_ONCE = 100
QUIET_S = 0.4
"""How long the suite watches for what must not happen."""
SHORT_LOAN_S = 1.0


class Harness(Protocol):
    """One running engine, and the ways to hurt it.

    Connections made before a fault must come back by themselves after it.
    """

    async def connect(
        self, mesh: str, *, create: bool = True, loan_s: float | None = None
    ) -> Engine:
        """A new connection. `loan_s` is for queues that it makes; None = the engine's own."""

    async def kill_server(self) -> None:
        """End the server without warning; what it acknowledged must be there afterwards."""

    async def restart_server(self) -> None:
        """Start it again, on the same store and address."""

    def stalled_server(self) -> AbstractAsyncContextManager[None]:
        """While entered, the server receives and does not answer; afterwards it does both."""

    async def sever(self, engine: Engine) -> None:
        """Break one connection without the server's doing; it comes back by itself."""

    async def keep_copy(self) -> None:
        """Put a copy of the server's store aside (may restart the server)."""

    async def restore_older(self) -> None:
        """Replace the server's store by that copy (restarts the server)."""


class HarnessFactory(Protocol):
    """Makes a harness. Tests that hurt the server ask for one that nobody shares."""

    def __call__(self, *, own_server: bool) -> AbstractAsyncContextManager[Harness]:
        """Enter it for one test."""


class Site:
    """A fresh mesh on a harness, as one test sees it."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.mesh = new_mesh()
        self.engines: list[Engine] = []
        self._ids = 0

    async def connect(self, *, create: bool = True, loan_s: float | None = None) -> Engine:
        """A connection that is closed when the test ends."""
        engine = await self.harness.connect(self.mesh, create=create, loan_s=loan_s)
        self.engines.append(engine)
        return engine

    async def connect_many(self, count: int, *, loan_s: float | None = None) -> list[Engine]:
        """Several of them, one after the other."""
        return [await self.connect(loan_s=loan_s) for _ in range(count)]

    async def close(self) -> None:
        """Close whatever is open."""
        for engine in self.engines:
            await engine.close()

    # --- subjects and records ---------------------------------------------------------------

    def call(self, number: int, *, kind: str = "render", priority: Priority = "normal") -> str:
        """The subject on which job `number` is announced."""
        return job_subjects.call(self.mesh, priority, kind, job_id(number))

    def job(self, number: int, *, kind: str = "render") -> str:
        """The subject of what happens to job `number`."""
        return job_subjects.job(self.mesh, kind, job_id(number))

    def control(self, what: str = "rules") -> str:
        """The subject of a control op."""
        return subjects.control(self.mesh, what)

    def calls(self, *, below: bool = False) -> str:
        """The filter of a queue."""
        return job_subjects.calls_of(self.mesh, "normal", "render", below=below)

    def fresh_id(self) -> str:
        """A message id that was not used before."""
        self._ids += 1
        return f"{self.mesh}-{self._ids}"

    async def append(
        self,
        engine: Engine,
        subject: str,
        payload: bytes = b"x",
        *,
        after: int = 0,
        message_id: str = "",
    ) -> int:
        """Append with the defaults that most tests want."""
        return await engine.log.append(
            subject,
            payload,
            message_id=message_id or self.fresh_id(),
            expected_last=after,
        )

    async def append_calls(self, engine: Engine, count: int) -> None:
        """Append many announcements, some at once: a busy server has to answer all in time."""
        for first in range(0, count, _AT_ONCE):
            some = range(first, min(first + _AT_ONCE, count))
            await asyncio.gather(*(self.append(engine, self.call(n)) for n in some))

    async def announce(self, engine: Engine, numbers: range) -> list[int]:
        """Announce jobs, in order."""
        return [await self.append(engine, self.call(n)) for n in numbers]


class EngineSuite:
    """Base of all suites: subclass them, name your harness, and let pytest collect."""

    harness: ClassVar[HarnessFactory]

    @asynccontextmanager
    async def site(self, *, own_server: bool = False) -> AsyncIterator[Site]:
        """A fresh mesh; everything that was connected to it is closed at the end."""
        async with self.harness(own_server=own_server) as harness:
            site = Site(harness)
            try:
                yield site
            finally:
                await site.close()


# --- words ------------------------------------------------------------------------------------


def new_mesh() -> str:
    """A mesh id that nobody uses."""
    return secrets.token_hex(8)


def job_id(number: int) -> str:
    """A job id that tells its number."""
    return f"{number:064x}"


class Caught:
    """The error that a block raised."""

    error: AntiphonError


@contextmanager
def refused(type_: type[AntiphonError]) -> Iterator[Caught]:
    """The block must raise exactly this kind of error (or one derived from it)."""
    caught = Caught()
    try:
        yield caught
    except type_ as error:
        caught.error = error
    else:
        raise AssertionError(f"{type_.__name__} was not raised")


async def soon(awaitable: Awaitable[T], within_s: float = WITHIN_S) -> T:
    """Must happen, and not too late."""
    async with asyncio.timeout(within_s):
        return await awaitable


async def is_quiet(queue: WorkQueue, for_s: float = QUIET_S) -> bool:
    """Whether nothing arrives for a while."""
    try:
        async with asyncio.timeout(for_s):
            await queue.next()
    except TimeoutError:
        return True
    return False


async def eventually(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


async def persist(attempt: Callable[[], Awaitable[T]], within_s: float = WITHIN_S) -> T:
    """Try again while the engine is unreachable. Only for what may be done twice."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await attempt()
            except Unavailable:
                await asyncio.sleep(0.05)


async def collect(
    batches: AsyncIterator[list[Record]], count: int, within_s: float = WITHIN_S
) -> list[Record]:
    """The next `count` records of a follower; more are a failure."""
    found: list[Record] = []
    async with asyncio.timeout(within_s):
        while len(found) < count:
            batch = await anext(batches)
            assert batch, "a follower yielded an empty batch"
            found += batch
    assert len(found) == count, f"{len(found)} records where {count} were stored"
    return found


async def take(queue: WorkQueue, count: int, within_s: float = WITHIN_S) -> list[Delivery]:
    """The next `count` deliveries, in the order they came."""
    async with asyncio.timeout(within_s):
        return [await queue.next() for _ in range(count)]


async def whole_lane(log: OpLog, filters: Sequence[str], *, after: int = 0) -> list[Record]:
    """All pages of a lane as one list."""
    return [record async for page in log.read_lane(filters, after=after) for record in page]


def seqs(records: list[Record]) -> list[int]:
    """Only the sequences."""
    return [record.seq for record in records]
