"""Opens the queues of a worker's kinds by the mesh's rules, and switches when the rules change.

Under `queue` it is the engine's own queue, without the jobs that need labels; under `rendezvous`
the workers of the kind share it among themselves (spec §8). The worker sees no difference.

A worker asks for no jobs of a kind that is routed to another node: the engine's queue does not know
routes, and would hand it jobs that it may not claim. It sees a route set or cleared as soon as it
reads the record.

A job with `requires` is always drawn for, whatever its kind's rule is. The engine hands its
announcement to any worker, which points the workers with labels to it, on the bus, and hands it
back for a while. The queue keeps it, and its next delivery repeats the pointer, until the job has
ended (docs/decisions/0015).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import JobOffer, JobSchedule
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.state import State
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.core.policy import selection
from antiphon.errors import AntiphonError, EngineDenied, Unavailable
from antiphon.runtime.presence.worker_presence import Traits, WorkerPresence
from antiphon.runtime.services import beside
from antiphon.runtime.worker.announced_jobs import (
    RecentActivity,
    need_of,
    recent_activity,
    requiring_labels,
)
from antiphon.runtime.worker.rendezvous import Rendezvous, RendezvousQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from antiphon.core.families.jobs.priority import Priority
    from antiphon.core.policy.selection import Method
    from antiphon.ports import Delivery, WorkQueue
    from antiphon.runtime.log.session import Session

RULES_LOOK_S: Final = 2.0
"""How soon a change is noticed that comes with time, and not with a record."""
POINT_AGAIN_S: Final = 5.0
POINT_AGAIN_MOST_S: Final = 60.0
PLAIN_KEPT: Final = 4_096
_DOUBLINGS: Final = 4
_LONGEST_PAUSE: Final = 6


@asynccontextmanager
async def selecting(
    session: Session, kinds: Sequence[str], traits: Traits, free: Callable[[], int]
) -> AsyncIterator[list[tuple[str, Priority, WorkQueue]]]:
    """The queues of these kinds, each with its kind and its priority.

    There are two for each priority: its announcements, and its jobs that others point to.

    `free` returns how many slots the worker has left.
    """
    each = [_Selected(session, kind, traits, free) for kind in kinds]
    async with beside(*(one.run() for one in each), _watch_control(session, each)):
        for one in each:
            await one.ready.wait()
        yield [(one.kind, *queue) for one in each for queue in one.queues]


@asynccontextmanager
async def rendezvous(
    presence: WorkerPresence, priority: Priority, activity: RecentActivity
) -> AsyncIterator[Rendezvous]:
    """The rendezvous of one kind and priority; `presence` must be listening."""
    drawn = Rendezvous(presence)
    calls = job_subjects.calls_of(presence.session.mesh, priority, presence.kind, below=False)
    try:
        async with beside(drawn.follow(calls, activity), drawn.look_again()):
            yield drawn
    finally:
        await drawn.close()


@asynccontextmanager
async def pointed(presence: WorkerPresence) -> AsyncIterator[Rendezvous]:
    """The jobs that others point to, of any priority; `presence` must be listening."""
    pointers = Rendezvous(presence, heeds_pointers=True)
    try:
        async with beside(pointers.look_again()):
            yield pointers
    finally:
        await pointers.close()


async def _watch_control(session: Session, each: list[_Selected]) -> None:
    news = asyncio.Event()
    with session.watching_control(news.set):
        while True:
            for one in each:
                one.look_at_control()
            news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(RULES_LOOK_S):
                    await news.wait()


class _Selected:
    """One kind's queues, and their present sources."""

    def __init__(
        self, session: Session, kind: str, traits: Traits, free: Callable[[], int]
    ) -> None:
        self.kind = kind
        self._free = free
        self.ready = asyncio.Event()
        self._session = session
        self._traits = traits
        self._called = {priority: SwitchedQueue() for priority in PRIORITIES}
        self._pointed = {priority: SwitchedQueue() for priority in PRIORITIES}
        self._chain_choice = ChainChoice(session.author.did)
        self._method: Method | None = None
        self._has_changed = asyncio.Event()

    @property
    def queues(self) -> list[tuple[Priority, SwitchedQueue]]:
        """Each with its priority; always the same objects."""
        return [*self._called.items(), *self._pointed.items()]

    def look_at_control(self) -> None:
        """Begin to switch if the rules or the route have changed."""
        if self._method_now() != self._method:
            self._has_changed.set()

    def _method_now(self) -> Method | None:
        """The kind's selection; None while it is routed to another node."""
        session = self._session
        is_for_others = selection.is_for_others(
            session.control,
            self._chain_choice,
            did=session.author.did,
            kind=self.kind,
            now_ms=session.wall.now_ms(),
        )
        return None if is_for_others else selection.method(session.control, self.kind)

    async def run(self) -> None:
        """Keep the right queues open until cancelled."""
        attempt = 0
        while True:
            self._method = self._method_now()
            self._has_changed.clear()
            try:
                async with AsyncExitStack() as stack:
                    try:
                        await self._open(stack, self._method)
                        self.ready.set()
                        attempt = 0
                        await self._has_changed.wait()
                    finally:
                        for _, queue in self.queues:
                            queue.let_go()
            except EngineDenied:
                raise
            except Unavailable:
                if not self.ready.is_set():
                    raise
                await self._session.pause(attempt)
                attempt = min(attempt + 1, _LONGEST_PAUSE)

    async def _open(self, stack: AsyncExitStack, method: Method | None) -> None:
        if method is None:
            return
        presence = WorkerPresence(self._session, self.kind, self._traits, self._free)
        if method == "rendezvous":
            await stack.enter_async_context(presence.listening())
            lately = await recent_activity(self._session, self.kind)
            for priority, switched in self._called.items():
                drawn = await stack.enter_async_context(rendezvous(presence, priority, lately))
                switched.use(RendezvousQueue(drawn, priority))
            return
        has_labels = bool(self._traits.labels)
        await stack.enter_async_context(presence.listening(silently=not has_labels))
        pointers = await stack.enter_async_context(pointed(presence))
        if has_labels:
            lately = await recent_activity(self._session, self.kind)
            for record in await requiring_labels(self._session, self.kind, lately):
                pointers.look_at(record.seq, record.subject[-64:])
        for priority, switched in self._pointed.items():
            switched.use(RendezvousQueue(pointers, priority))
        for priority, switched in self._called.items():
            calls = job_subjects.calls_of(self._session.mesh, priority, self.kind, below=False)
            name = queue_name(self.kind, priority)
            shared = await stack.enter_async_context(self._session.log.work(calls, name=name))
            switched.use(SiftedQueue(shared, presence, pointers if has_labels else None))


class SwitchedQueue:
    """A `ports.WorkQueue` whose source can be replaced while it is in use."""

    def __init__(self) -> None:
        """Begin without a source: credits are kept until there is one."""
        self._source: WorkQueue | None = None
        self._owed = 0
        self._told: Callable[[], None] = lambda: None
        self._has_source = asyncio.Event()

    def use(self, source: WorkQueue) -> None:
        """Take deliveries from this source from now on."""
        self._source = source
        source.watch(self._tell)
        owed, self._owed = self._owed, 0
        source.grant(owed)
        self._tell()
        self._has_source.set()

    def let_go(self) -> None:
        """Take deliveries from nowhere; the source is about to be closed."""
        source, self._source = self._source, None
        self._has_source.clear()
        if source is not None:
            self._owed = source.credits
            source.revoke_credits()
        self._tell()

    @property
    def loan_s(self) -> float:
        """The present source's."""
        return self._source.loan_s if self._source is not None else POINT_AGAIN_S

    @property
    def credits(self) -> int:
        """Granted and not yet used."""
        return self._owed if self._source is None else self._source.credits

    @property
    def is_dry(self) -> bool:
        """The present source's; without a source there is nothing."""
        return self._source is None or self._source.is_dry

    def watch(self, told: Callable[[], None]) -> None:
        """Call `told` when there may be nothing, whatever the source."""
        self._told = told

    def _tell(self) -> None:
        self._told()

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries."""
        if self._source is None:
            self._owed += max(count, 0)
        else:
            self._source.grant(count)

    def ask(self) -> None:
        """Have the present source report whether there is anything."""
        if self._source is not None:
            self._source.ask()

    def revoke_credits(self) -> None:
        """Ask for nothing more."""
        self._owed = 0
        if self._source is not None:
            self._source.revoke_credits()

    async def next(self) -> Delivery:
        """Wait for the next delivery, over any change of source."""
        while True:
            source = self._source
            if source is None:
                await self._has_source.wait()
                continue
            try:
                return await source.next()
            except Unavailable:
                if source is self._source:
                    raise

    def next_now(self) -> Delivery | None:
        """See `ports.WorkQueue.next_now`."""
        return None if self._source is None else self._source.next_now()

    async def close(self) -> None:
        """Does nothing: the code that opened the sources closes them."""
        self.let_go()


class SiftedQueue:
    """An engine's queue without the jobs that require labels."""

    def __init__(
        self, shared: WorkQueue, presence: WorkerPresence, pointers: Rendezvous | None
    ) -> None:
        """`pointers` is this worker's own source of such jobs, if it has labels."""
        self._shared = shared
        self._presence = presence
        self._session = presence.session
        self._pointers = pointers
        self._plain: OrderedDict[str, None] = OrderedDict()
        """Jobs that require nothing: their further announcements need no read."""
        self._in_hand = 0
        """Deliveries that are being checked."""
        self._next: Delivery | None = None
        """One that has arrived, and has to be checked."""

    @property
    def loan_s(self) -> float:
        """Seconds after which an unsettled delivery goes to another worker."""
        return self._shared.loan_s

    @property
    def credits(self) -> int:
        """Granted and not yet used."""
        return self._shared.credits + self._in_hand + (self._next is not None)

    @property
    def is_dry(self) -> bool:
        """See `ports.WorkQueue.is_dry`."""
        return self._shared.is_dry and not self._in_hand and self._next is None

    def watch(self, told: Callable[[], None]) -> None:
        """See `ports.WorkQueue.watch`."""
        self._shared.watch(told)

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries."""
        self._shared.grant(count)
        self._presence.changed()

    def ask(self) -> None:
        """See `ports.WorkQueue.ask`."""
        self._shared.ask()

    def revoke_credits(self) -> None:
        """Ask for nothing more."""
        held, self._next = self._next, None
        if held is not None:
            held.nak()
        self._shared.revoke_credits()

    async def close(self) -> None:
        """Does nothing: the code that opened the shared queue closes it."""

    def next_now(self) -> Delivery | None:
        """See `ports.WorkQueue.next_now`; one that has to be checked first waits for `next`."""
        delivery = None if self._next is not None else self._shared.next_now()
        if delivery is None:
            return None
        op = self._session.open(delivery.record).op
        if not isinstance(op, JobSchedule | JobOffer) or self._is_plain(delivery, op):
            return delivery
        self._next = delivery
        return None

    async def next(self) -> Delivery:
        """Wait for the next delivery that any worker can run."""
        while True:
            delivery, self._next = self._next or await self._shared.next(), None
            op = self._session.open(delivery.record).op
            if not isinstance(op, JobSchedule | JobOffer) or self._is_plain(delivery, op):
                return delivery
            self._in_hand += 1
            try:
                if not await self._is_passed_on(delivery, op):
                    return delivery
            finally:
                self._in_hand -= 1

    async def _is_passed_on(self, delivery: Delivery, op: JobSchedule | JobOffer) -> bool:
        try:
            is_particular = await self._is_particular(delivery, op)
        except asyncio.CancelledError:
            delivery.nak()
            raise
        except AntiphonError:
            return False  # the worker runs into the same problem, and settles it
        if is_particular:
            await self._pass_on(delivery)
        return is_particular

    def _is_plain(self, delivery: Delivery, op: JobSchedule | JobOffer) -> bool:
        job_id = delivery.record.subject[-64:]
        if isinstance(op, JobOffer):
            return job_id in self._plain
        if op.body.requires or op.prev != 0:
            return False
        if len(self._plain) >= PLAIN_KEPT:
            self._plain.popitem(last=False)
        self._plain[job_id] = None
        return True

    async def _is_particular(self, delivery: Delivery, op: JobSchedule | JobOffer) -> bool:
        """Whether the job is pending, and requires labels."""
        if isinstance(op, JobSchedule) and op.prev == 0 and delivery.deliveries == 1:
            return True
        view = await self._session.read_lane(self._presence.kind, delivery.record.subject[-64:])
        need, job = need_of(view), view.lane.job
        is_pending = job is not None and job.state is State.PENDING
        return is_pending and need is not None and bool(need.requires)

    async def _pass_on(self, delivery: Delivery) -> None:
        job_id, call = delivery.record.subject[-64:], delivery.record.seq
        doubled_s = POINT_AGAIN_S * (1 << min(delivery.deliveries - 1, _DOUBLINGS))
        jitter_s = self._session.entropy.random() * POINT_AGAIN_S
        delivery.nak(min(doubled_s, POINT_AGAIN_MOST_S) + jitter_s)
        self._shared.grant(1)
        if self._pointers is not None:
            self._pointers.look_at(call, job_id)
        await self._presence.point_to(job_id, call)
