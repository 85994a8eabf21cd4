"""A worker's end of a shared queue, and the announcements that arrive there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from antiphon.engines.memory.connection import Connection
from antiphon.engines.memory.queues import QueueStore
from antiphon.engines.memory.signal import Signal
from antiphon.errors import Unavailable
from antiphon.ports import Record

ASK_AGAIN_S = 2.0
"""How long after a request for work got lost the member asks again."""


class MemoryDelivery:
    """`ports.Delivery`: settles the record, not the delivery. Nothing is fenced."""

    __slots__ = ("_connection", "_store", "deliveries", "record")

    def __init__(
        self, record: Record, deliveries: int, store: QueueStore, connection: Connection
    ) -> None:
        self.record = record
        self.deliveries = deliveries
        self._store = store
        self._connection = connection

    def ack(self) -> None:
        """Never hand it out again."""
        self._connection.post("ack", partial(self._store.ack, self.record.seq))

    def nak(self, delay_s: float = 0.0) -> None:
        """Hand it out again."""
        self._connection.post("nak", partial(self._store.nak, self.record.seq, delay_s))

    def in_progress(self) -> None:
        """Keep the loan."""
        self._connection.post("in_progress", partial(self._store.in_progress, self.record.seq))


class MemoryQueue:
    """`ports.WorkQueue`, a `Member` of the server's queue and an `End` of the connection.

    `room` is what the server may still send. A delivery that was lost on the way has used up
    room that the worker never saw used; it comes back when the loan is over.
    """

    def __init__(self, connection: Connection, store: QueueStore) -> None:
        self.room = 0
        self._is_dry = False
        self._is_asking = False
        self._told: Callable[[], None] = lambda: None
        self._connection = connection
        self._store = store
        self._lost = 0
        self._late = 0
        self._arrived: deque[MemoryDelivery] = deque()
        """Bounded by the credits that were granted."""
        self._signal = Signal()
        self._is_closed = False
        connection.ends[self] = None
        self.attach()

    @property
    def loan_s(self) -> float:
        """Seconds after which an unsettled delivery goes to someone else."""
        return self._store.loan_s

    @property
    def credits(self) -> int:
        """See `ports.WorkQueue.credits`."""
        return self.room + self._lost + self._late + len(self._arrived)

    @property
    def is_dry(self) -> bool:
        """See `ports.WorkQueue.is_dry`."""
        return self._is_dry and not self._arrived

    def watch(self, told: Callable[[], None]) -> None:
        """See `ports.WorkQueue.watch`."""
        self._told = told

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries."""
        if count > 0 and not self._is_closed:
            self.room += count
            self._ask()

    def ask(self) -> None:
        """See `ports.WorkQueue.ask`."""
        if self.room and not self._is_dry and not self._is_asking:
            self._ask()

    def _ask(self) -> None:
        self._is_asking = True
        # Through `post`: a pause delays it, and without a connection `attach` asks again anyway.
        is_sent = self._connection.post("grant", self._ask_server)
        if not is_sent and self._connection.is_attached and not self._is_closed:
            asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask)

    def revoke_credits(self) -> None:
        """Ask for nothing more."""
        self.room = self._lost = 0
        self._is_dry = False

    async def next(self) -> MemoryDelivery:
        """Wait for the next delivery."""
        await asyncio.sleep(0)
        while True:
            await self._connection.running()
            if self._arrived:
                return self._arrived.popleft()
            if self._is_closed:
                raise Unavailable("this queue is closed")
            await self._signal.wait()

    def next_now(self) -> MemoryDelivery | None:
        """See `ports.WorkQueue.next_now`."""
        is_running = not (self._connection.is_paused or self._connection.is_closed)
        return self._arrived.popleft() if self._arrived and is_running else None

    async def close(self) -> None:
        """Stop asking; give back what arrived and was not taken."""
        self.finish()
        await asyncio.sleep(0)

    # --- as a member of the queue -----------------------------------------------------------

    def receive(self, record: Record, deliveries: int) -> None:
        """An announcement is on its way here."""
        delivery = MemoryDelivery(record, deliveries, self._store, self._connection)
        self._is_dry = False
        faults = self._connection.faults
        if faults is None:
            self._arrive(delivery)
            return
        fate = faults.delivery()
        loop = asyncio.get_running_loop()
        if fate.lost:
            self._lost += 1
            loop.call_later(self._store.loan_s, self._miss)
        elif fate.delay_s > 0:
            self._late += 1
            loop.call_later(fate.delay_s, self._arrive_late, delivery)
        else:
            self._arrive(delivery)

    def _arrive(self, delivery: MemoryDelivery) -> None:
        if self._is_closed:
            return
        if self._connection.is_attached:
            self._arrived.append(delivery)
            self._signal.fire()
        else:  # the connection was lost behind it: its credit is asked for again with the next one
            self.room += 1

    def _arrive_late(self, delivery: MemoryDelivery) -> None:
        self._late -= 1
        self._arrive(delivery)

    def _miss(self) -> None:
        if self._lost:
            self._lost -= 1
            self.room += 1
            self._ask()

    def _ask_server(self) -> None:
        self._is_asking = False
        self._store.ask(self)
        if self.room > 0 and not self._late and self._connection.is_attached:
            self._is_dry = True
            self._told()

    # --- as an end of the connection --------------------------------------------------------

    def attach(self) -> None:
        """Join again with the room that was left."""
        self._store.join(self)
        self._ask_server()

    def detach(self) -> None:
        """The server forgets this member; its loans run on."""
        self._store.leave(self)
        self._is_dry = False

    def finish(self) -> None:
        """Leave, and give back what was not taken."""
        if self._is_closed:
            return
        self._is_closed = True
        self.room = self._lost = 0
        self._connection.ends.pop(self, None)
        self.detach()
        while self._arrived:
            self._arrived.popleft().nak()
        self._signal.fire()

    def wake(self) -> None:
        """Check the connection again."""
        self._signal.fire()
