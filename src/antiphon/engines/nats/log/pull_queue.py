"""A worker's end of a shared durable pull consumer, fed by credits.

Credits become `MSG.NEXT` requests: first one that the engine answers at once, with deliveries or
with a status that there are none, and then one that waits there for what comes. A request
occupies one of a few slots, and each slot has its own subscription, so that every delivery
is known to belong to one request: the engine shows the record's own subject on deliveries and
could not tell otherwise. That is what keeps the books right when a consumer's leader dies
silently.

Owns re-asking: after a reconnect, after a status (a new leader of the consumer sends one), and when
neither messages nor status came in time.
Invariant: while there are credits and the connection is up, at least one request is out.
Refuses to settle anything by itself, except to give back what nobody took.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Self

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection, Subscription
from antiphon.engines.nats.connection.stamps import parse_ack_subject
from antiphon.engines.nats.log.consumers import Consumer
from antiphon.engines.nats.log.streams import Streams
from antiphon.errors import AntiphonError, EngineDenied, Unavailable
from antiphon.ports import Record

LOAN_S = 30.0
EXPIRES_S = 15.0
"""How long a request waits at the engine before it is asked again, at first."""
LONGEST_EXPIRES_S = 240.0
"""The same after waiting for long: each request that ends without a delivery doubles it."""
OVERDUE_S = 2.0
"""How late the engine's word that a request ended may be before it is asked again."""
ANSWER_S = 2.0
"""How long a request that does not wait may stay unanswered before it is asked again."""
PENDING_RETRY_S = 0.05
"""How soon to ask again where what is available was promised to requests that wait."""
MAX_SLOTS = 8
MAX_BATCH = 2048
_LINGER_S = 5.0
_RETRY_S = 1.0
_NOTHING, _TIMEOUT, _NO_RESPONDERS = 404, 408, 503
_NS_PER_S = 1_000_000_000
_names = itertools.count(1)
_log = logging.getLogger(__name__)


class PulledDelivery:
    """`ports.Delivery`: a record on loan."""

    __slots__ = ("_connection", "_reply", "deliveries", "record")

    def __init__(
        self, connection: Connection, reply: bytes, record: Record, deliveries: int
    ) -> None:
        self._connection = connection
        self._reply = reply
        self.record = record
        self.deliveries = deliveries

    def ack(self) -> None:
        """See `ports.Delivery.ack`."""
        self._settle(b"+ACK")

    def nak(self, delay_s: float = 0.0) -> None:
        """See `ports.Delivery.nak`."""
        if delay_s > 0:
            self._settle(b'-NAK {"delay":%d}' % int(delay_s * _NS_PER_S))
        else:
            self._settle(b"-NAK")

    def in_progress(self) -> None:
        """See `ports.Delivery.in_progress`."""
        self._settle(b"+WPI")

    def _settle(self, word: bytes) -> None:
        if self._connection.up:
            self._connection.send(wire.pub(self._reply, word))


class _Slot:
    """One subscription and at most one request behind it."""

    __slots__ = ("deadline", "is_extra", "left", "listener", "prefix", "round", "waits")

    def __init__(self) -> None:
        self.listener: Subscription | None = None
        self.prefix = b""
        self.round = 0
        self.left = 0
        self.waits = False
        """Whether the engine keeps the request, or has to answer at once."""
        self.is_extra = False
        """Whether it stands for no credit: it asks about those that wait."""
        self.deadline = 0.0


class PullQueue:
    """`ports.WorkQueue`, and the context manager that joins and leaves it."""

    def __init__(
        self,
        connection: Connection,
        streams: Streams,
        *,
        stream: str,
        name: str,
        subject: str,
        loan_s: float,
    ) -> None:
        self._connection = connection
        self._name = name
        self._consumer = Consumer(streams, stream=stream, name=name, subject=subject)
        self._loan_s = loan_s
        self._loop = asyncio.get_running_loop()
        self._ask_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}".encode()
        self._inbox = f"{connection.inbox}.w{next(_names)}"
        self._credits = 0
        self._is_dry = False
        self._expires_s = EXPIRES_S
        self._is_asked = False
        """Whether somebody wants to know if there is anything, beyond what waits there."""
        self._told: Callable[[], None] = lambda: None
        self._slots: list[_Slot] = []
        self._ready: deque[PulledDelivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._failure: AntiphonError | None = None
        self._rejoining: asyncio.Task[None] | None = None
        self._closed = False
        self._undo = (
            connection.watch_denials(self._on_denied),
            connection.watch_state(self._on_state),
        )

    async def __aenter__(self) -> Self:
        try:
            await self._join()
        except BaseException:
            self._stop_watching()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _join(self) -> None:
        if not self._connection.identity.is_restricted:  # else the gate made it before
            self._loan_s = await self._consumer.make(self._loan_s)

    # --- the worker's side ------------------------------------------------------------------

    @property
    def loan_s(self) -> float:
        """See `ports.WorkQueue.loan_s`."""
        return self._loan_s

    @property
    def credits(self) -> int:
        """See `ports.WorkQueue.credits`."""
        return self._credits + len(self._ready)

    @property
    def is_dry(self) -> bool:
        """See `ports.WorkQueue.is_dry`."""
        return self._is_dry and not self._ready

    def watch(self, told: Callable[[], None]) -> None:
        """See `ports.WorkQueue.watch`."""
        self._told = told

    def grant(self, count: int) -> None:
        """See `ports.WorkQueue.grant`; grants of one turn of the loop become one request."""
        if count > 0 and not self._closed:
            self._credits += count
            self._ask_soon()

    def ask(self) -> None:
        """See `ports.WorkQueue.ask`."""
        if self._credits and not self._is_dry:
            self._is_asked = True
            self._ask_soon()

    def revoke_credits(self) -> None:
        """See `ports.WorkQueue.revoke_credits`."""
        self._credits = 0
        self._is_dry = False
        for slot in self._slots:
            # Without a listener the engine drops the request that waits for it.
            if slot.listener is not None:
                self._connection.unlisten(slot.listener, linger_s=_LINGER_S)
        self._slots.clear()

    async def next(self) -> PulledDelivery:
        """See `ports.WorkQueue.next`."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closed or self._connection.closed:
                raise Unavailable("the queue is closed")
            if self._ready:
                return self._ready.popleft()
            self._connection.require_login()
            taker: asyncio.Future[None] = self._loop.create_future()
            self._takers.append(taker)
            try:
                await taker
            finally:
                if taker in self._takers:
                    self._takers.remove(taker)
                elif self._ready:
                    self._wake()  # woken and cancelled in the same moment: pass it on

    def next_now(self) -> PulledDelivery | None:
        """See `ports.WorkQueue.next_now`."""
        return self._ready.popleft() if self._ready and self._failure is None else None

    async def close(self) -> None:
        """See `ports.WorkQueue.close`; safe twice."""
        if self._closed:
            return
        self._closed = True
        self.revoke_credits()
        self._stop_watching()
        for handle in (self._timer, self._soon, self._rejoining):
            if handle is not None:
                handle.cancel()
        while self._ready:
            self._ready.popleft().nak()
        self._wake_all()
        try:
            # What the engine sent before it saw us leave arrives until then and is given back.
            await self._connection.round_trip(timeout_s=1.0)
        except Unavailable:
            _log.debug("left the queue %s while disconnected", self._name)

    def _stop_watching(self) -> None:
        for undo in self._undo:
            undo()

    # --- the engine's side ------------------------------------------------------------------

    def _ask_soon(self) -> None:
        if self._soon is None and not self._closed:
            self._soon = self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        """Turn credits that no request stands for into a request.

        Where all of them wait at the engine, and it is not known whether there is anything, one
        more asks for that.
        """
        self._soon = None
        if self._closed or not self._connection.up:
            return  # coming up asks for everything again
        unasked = self._credits - sum(slot.left for slot in self._slots if not slot.is_extra)
        is_extra = unasked <= 0
        if is_extra and not (self._is_asked and self._credits and not self._is_answer_due):
            return
        # One slot is kept for requests that the engine answers at once.
        slot = self._free_slot(MAX_SLOTS - 1 if self._is_dry else MAX_SLOTS)
        if slot is None:
            return  # whichever request ends asks for the rest
        self._is_asked = False
        slot.round += 1
        slot.left = 1 if is_extra else min(unasked, MAX_BATCH)
        slot.is_extra, slot.waits = is_extra, self._is_dry
        expires_s = self._expires_s
        slot.deadline = self._loop.time() + (expires_s + OVERDUE_S if slot.waits else ANSWER_S)
        how = b'"expires":%d' % int(expires_s * _NS_PER_S) if slot.waits else b'"no_wait":true'
        body = b'{"batch":%d,%b}' % (slot.left, how)
        self._connection.send(wire.pub(self._ask_subject, body, slot.prefix + b"%d" % slot.round))
        self._watch()

    @property
    def _is_answer_due(self) -> bool:
        """Whether the engine said that there is nothing, or is about to say."""
        return self._is_dry or any(slot.left and not slot.waits for slot in self._slots)

    def _free_slot(self, most: int) -> _Slot | None:
        """One without a request, while fewer than `most` have one."""
        if sum(slot.left > 0 for slot in self._slots) >= most:
            return None
        for slot in self._slots:
            if slot.left == 0:
                return slot
        slot = _Slot()
        inbox = f"{self._inbox}.{next(_names)}."
        slot.prefix = inbox.encode()
        slot.listener = self._connection.listen(
            f"{inbox}*",
            lambda subject, reply, payload, header: self._on_message(
                slot, subject, reply, payload, header
            ),
        )
        self._slots.append(slot)
        return slot

    def _on_message(
        self, slot: _Slot, subject: bytes, reply: bytes, payload: bytes, header: bytes
    ) -> None:
        if not reply.startswith(b"$JS.ACK."):
            self._on_status(slot, subject, header)
            return
        info = parse_ack_subject(reply)
        record = Record(info.seq, info.stamp_ns, wire.read_subject(subject), payload)
        delivery = PulledDelivery(self._connection, reply, record, info.deliveries)
        if self._closed:
            delivery.nak()
            return
        if slot.left > 0:
            slot.left -= 1
        self._credits = max(0, self._credits - 1)
        self._is_dry = False
        self._expires_s = EXPIRES_S
        self._ready.append(delivery)
        self._wake()
        if slot.left == 0:
            self._ask_soon()

    def _on_status(self, slot: _Slot, subject: bytes, header: bytes) -> None:
        status = wire.status_of(header)
        if not subject.startswith(slot.prefix) or status in {0, 100}:
            return
        if subject[len(slot.prefix) :] != b"%d" % slot.round:
            return  # about a request that was given up
        slot.left = 0
        self._is_asked |= slot.is_extra
        words = wire.status_text(header)
        if status == _NOTHING:
            self._is_asked = False
            self._is_dry = self._credits > 0
            self._ask_soon()  # for what is left, to wait there
            self._told()
        elif status == _TIMEOUT and not slot.waits:
            self._loop.call_later(PENDING_RETRY_S, self._ask_soon)
        elif status == _TIMEOUT or "Batch Completed" in words:
            self._expires_s = min(2 * self._expires_s, LONGEST_EXPIRES_S)
            self._ask_soon()
        elif status == _NO_RESPONDERS or "Deleted" in words:
            self._rejoin()
        else:
            # A new leader, too many waiting: ask again, but not in a tight loop.
            self._loop.call_later(_RETRY_S, self._ask_soon)

    def _rejoin(self) -> None:
        """No responders for the queue: it has no leader, or is gone and must be created again."""
        if self._rejoining is None and not self._closed:
            self._rejoining = self._loop.create_task(self._join_again())

    async def _join_again(self) -> None:
        try:
            await asyncio.sleep(_RETRY_S)
            await self._join()
        except Unavailable as error:
            _log.debug("joining the queue %s again: %s", self._name, error)
        except AntiphonError as error:
            self._failure = error
            self._wake_all()
        finally:
            self._rejoining = None
            self._ask_soon()

    def _watch(self) -> None:
        """Look again when the first request is overdue."""
        at_s = min((slot.deadline for slot in self._slots if slot.left), default=None)
        if at_s is None or (self._timer is not None and self._timer.when() <= at_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        self._timer = None
        now = self._loop.time()
        for slot in self._slots:
            if slot.left and slot.deadline <= now:
                slot.left = 0
                self._is_asked |= slot.is_extra
        if not self._closed and self._credits:
            self._ask_soon()
            self._watch()

    def _on_state(self, up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        for slot in self._slots:
            slot.left = 0
            slot.round += 1
        self._is_dry = False
        self._expires_s = EXPIRES_S
        if up:
            self._ask_soon()
        elif self._connection.closed or self._connection.ended is not None:
            self._wake_all()

    def _on_denied(self, subject: str, denial: EngineDenied) -> None:
        if subject.encode() == self._ask_subject and not self._closed:
            self._failure = EngineDenied(denial.message, hint=denial.hint)
            self._wake_all()

    def _wake(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _wake_all(self) -> None:
        for _ in range(len(self._takers)):
            self._wake()
