"""The bus: messages that are not stored; the server's side and a connection's."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from antiphon.core.bus.subjects import INBOX
from antiphon.engines.memory.connection import Connection, Feed
from antiphon.engines.memory.filters import Shape, SubjectFilter
from antiphon.ports import BusMessage


class BusStore:
    """The present subscribers, by subject."""

    def __init__(self) -> None:
        self._literal: dict[str, dict[Subscription, None]] = {}
        self._wild: dict[Subscription, None] = {}

    def add(self, listener: Subscription) -> None:
        """Send it what matches from now on."""
        if listener.wanted.shape is Shape.ONE:
            self._literal.setdefault(listener.wanted.key, {})[listener] = None
        else:
            self._wild[listener] = None

    def remove(self, listener: Subscription) -> None:
        """Send it nothing more."""
        self._wild.pop(listener, None)
        same = self._literal.get(listener.wanted.key)
        if same is not None:
            same.pop(listener, None)
            if not same:
                del self._literal[listener.wanted.key]

    def publish(self, message: BusMessage) -> None:
        """Deliver it to every subscriber."""
        for listener in self._literal.get(message.subject, ()):
            listener.receive(message)
        for listener in self._wild:
            if listener.wanted.selects(message.subject):
                listener.receive(message)


class Subscription(Feed[BusMessage]):
    """The context and the iterator of `Bus.subscribe`."""

    def __init__(
        self, connection: Connection, store: BusStore, wanted: SubjectFilter, *, max_pending: int
    ) -> None:
        super().__init__(connection)
        self.wanted = wanted
        self._store = store
        self._pending: deque[BusMessage] = deque(maxlen=max_pending)

    def _next(self) -> BusMessage | None:
        return self._pending.popleft() if self._pending else None

    def receive(self, message: BusMessage) -> None:
        """A message is on its way here."""
        faults = self._connection.faults
        fate = faults.bus() if faults else None
        if fate is None or (not fate.lost and fate.delay_s <= 0):
            self._arrive(message)
        elif not fate.lost:
            asyncio.get_running_loop().call_later(fate.delay_s, self._arrive, message)

    def _arrive(self, message: BusMessage) -> None:
        self._pending.append(message)
        self._signal.fire()

    # --- as an end of the connection --------------------------------------------------------

    def attach(self) -> None:
        """Subscribe again. What was sent meanwhile is lost."""
        self._store.add(self)

    def detach(self) -> None:
        """Receive nothing more."""
        self._store.remove(self)


class MemoryBus:
    """`ports.Bus` over one connection."""

    def __init__(self, connection: Connection, store: BusStore) -> None:
        self._connection = connection
        self._store = store
        self._inboxes = 0

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:
        """Send once."""
        self._connection.check()
        message = BusMessage(subject, payload, reply)
        self._connection.post("bus.publish", partial(self._store.publish, message))
        await asyncio.sleep(0)

    def subscribe(self, subject: str, *, max_pending: int = 4096) -> Subscription:
        """Subscribes when the context is entered."""
        wanted = SubjectFilter(subject)
        return Subscription(self._connection, self._store, wanted, max_pending=max_pending)

    @property
    def user(self) -> str:
        """Each connection is its own."""
        return str(self._connection.number)

    def new_inbox(self) -> str:
        """A fresh reply subject; numbered, so that a seed gives the same ones."""
        self._inboxes += 1
        return INBOX.at(user=self._connection.number, place=self._inboxes)
