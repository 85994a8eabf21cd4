"""Many requests in flight over one reply subscription.

Every request gets a counter token behind one wildcard inbox; replies find their waiter in a
dict. nats-py's own request path makes a subscription-sized effort per request and is three to
five times slower.

Owns the window (how much may be in flight), the deadlines and what a lost connection means
for waiting requests: a write becomes `OutcomeUnknown`, a read `Unavailable`, at once. Invariant:
every waiter ends exactly once, by a reply, a deadline, a refusal, a disconnect or its own
cancellation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.errors import AntiphonError, EngineDenied, OutcomeUnknown, Unavailable
from antiphon.ports import Record

DEFAULT_WINDOW = 2048
"""Requests in flight; a large payload counts as several. More gains nothing, and a slow disk
would answer the last of them after their deadline."""
BYTES_PER_SLOT = 16 * 1024
SWEEP_S = 0.05
"""How late a deadline may be noticed."""


class Reply(Struct, frozen=True, gc=False):
    """One answer: its payload and raw header block."""

    payload: bytes
    header: bytes


class Batch(Struct, gc=False):
    """The answers to a batched read, collected until the server says that it is done."""

    records: list[Record] = []
    headers: list[bytes] = []
    keep_headers: bool = False
    pending: int = 0
    """Matching records behind the last one."""
    last_seq: int = 0
    """The newest sequence of the stream, where the server tells it."""
    status: int = 0
    words: str = ""


class _Waiter:
    __slots__ = ("batch", "cost", "deadline", "future", "is_write", "subject")

    def __init__(
        self,
        future: asyncio.Future[Reply],
        subject: bytes,
        deadline: float,
        cost: int,
        is_write: bool,  # noqa: FBT001
        batch: Batch | None,
    ) -> None:
        self.future = future
        self.subject = subject
        self.deadline = deadline
        self.cost = cost
        self.is_write = is_write
        self.batch = batch


class Requester:
    """The requester of one connection."""

    def __init__(self, connection: Connection, *, window: int = DEFAULT_WINDOW) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._room = window
        self._window = window
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._pending: dict[bytes, _Waiter] = {}
        self._count = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._prefix = f"{connection.inbox}.r.".encode()
        self._token_at = len(self._prefix)
        self._listener = connection.listen(f"{connection.inbox}.r.*", self._on_reply)
        self._undo = (
            connection.watch_state(self._on_state),
            connection.watch_denials(self._on_denied),
        )

    def write(
        self, subject: bytes, payload: bytes, header: bytes, *, timeout_s: float
    ) -> Coroutine[Any, Any, Reply]:
        """Publish with headers and wait for the acknowledgement."""
        return self._ask(subject, payload, header, timeout_s, is_write=True)

    def request(
        self, subject: bytes, payload: bytes, *, timeout_s: float, is_write: bool = False
    ) -> Coroutine[Any, Any, Reply]:
        """Ask and wait for one answer."""
        return self._ask(subject, payload, b"", timeout_s, is_write=is_write)

    async def collect(
        self, subject: bytes, payload: bytes, *, timeout_s: float, keep_headers: bool = False
    ) -> Batch:
        """Ask and wait for many answers, up to the status message that ends them."""
        batch = Batch(keep_headers=keep_headers)
        await self._ask(subject, payload, b"", timeout_s, is_write=False, batch=batch)
        return batch

    async def collect_all(
        self, requests: list[tuple[bytes, bytes]], *, timeout_s: float
    ) -> list[Batch]:
        """Several batched reads sent together, headers kept; cheaper than a task for each."""
        batches = [Batch(keep_headers=True) for _ in requests]
        await self._ask_all(requests, batches, timeout_s)
        return batches

    async def request_all(
        self, requests: list[tuple[bytes, bytes]], *, timeout_s: float
    ) -> list[Reply]:
        """Several requests with one answer each, sent together."""
        return await self._ask_all(requests, [None] * len(requests), timeout_s)

    async def write_all(
        self, requests: Sequence[tuple[bytes, bytes, bytes]], *, timeout_s: float
    ) -> list[Reply | AntiphonError]:
        """Several publishes (subject, payload, header), sent together; each its own answer."""
        deadline = self._loop.time() + timeout_s
        sent: list[tuple[bytes, _Waiter] | AntiphonError] = []
        try:
            for subject, payload, header in requests:
                try:
                    sent.append(await self._begun(subject, payload, header, deadline))
                except AntiphonError as error:
                    sent.append(error)
            self._connection.write_out()  # now: what else this turn of the loop does can wait
            return [
                one if isinstance(one, AntiphonError) else await _settled(one[1]) for one in sent
            ]
        finally:
            for one in sent:
                if not isinstance(one, AntiphonError):
                    self._forget(*one)

    async def write_batch(
        self, requests: Sequence[tuple[bytes, bytes, bytes]], *, timeout_s: float
    ) -> Reply:
        """Several publishes of which only the last has an answer: it is that of all of them."""
        deadline = self._loop.time() + timeout_s
        cost = min(len(requests), self._window)
        await self._take_room(cost, deadline)
        *others, (subject, payload, header) = requests
        waiter = _Waiter(self._loop.create_future(), subject, deadline, cost, True, None)
        if self._connection.up:
            for one in others:
                self._connection.send(wire.hpub(*one, b""))
        token = self._send(waiter, payload, header)
        try:
            return await waiter.future
        finally:
            self._forget(token, waiter)

    async def _begun(
        self,
        subject: bytes,
        payload: bytes,
        header: bytes,
        deadline: float,
        *,
        is_write: bool = True,
        batch: Batch | None = None,
    ) -> tuple[bytes, _Waiter]:
        """Send a request as soon as it fits into the window; its token, and who waits."""
        cost = min(1 + len(payload) // BYTES_PER_SLOT, self._window)
        await self._take_room(cost, deadline)
        future: asyncio.Future[Reply] = self._loop.create_future()
        waiter = _Waiter(future, subject, deadline, cost, is_write, batch)
        return self._send(waiter, payload, header), waiter

    async def _ask_all(
        self,
        requests: list[tuple[bytes, bytes]],
        batches: Sequence[Batch | None],
        timeout_s: float,
    ) -> list[Reply]:
        deadline = self._loop.time() + timeout_s
        sent: list[tuple[bytes, _Waiter]] = []
        try:
            for (subject, payload), batch in zip(requests, batches, strict=True):
                await self._take_room(1, deadline)
                future: asyncio.Future[Reply] = self._loop.create_future()
                waiter = _Waiter(future, subject, deadline, 1, False, batch)
                sent.append((self._send(waiter, payload, b""), waiter))
            return [await waiter.future for _, waiter in sent]
        finally:
            for token, waiter in sent:
                self._forget(token, waiter)

    async def _ask(
        self,
        subject: bytes,
        payload: bytes,
        header: bytes,
        timeout_s: float,
        *,
        is_write: bool,
        batch: Batch | None = None,
    ) -> Reply:
        deadline = self._loop.time() + timeout_s
        token, waiter = await self._begun(
            subject, payload, header, deadline, is_write=is_write, batch=batch
        )
        try:
            return await waiter.future
        finally:
            if token in self._pending:
                self._forget(token, waiter)

    def _send(self, waiter: _Waiter, payload: bytes, header: bytes) -> bytes:
        """Send for a waiter that is within the window; from here on it ends exactly once."""
        connection = self._connection
        if not connection.up:
            self._give_back(waiter.cost)
            connection.require_up()
        self._count += 1
        token = b"%x" % self._count
        self._pending[token] = waiter
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        reply = self._prefix + token
        if header:
            connection.send(wire.hpub(waiter.subject, payload, header, reply))
        else:
            connection.send(wire.pub(waiter.subject, payload, reply))
        return token

    def _forget(self, token: bytes, waiter: _Waiter) -> None:
        """The caller left: by cancellation if its waiter is still here, else it was answered."""
        if self._pending.pop(token, None) is not None:
            self._give_back(waiter.cost)
        elif waiter.future.done() and not waiter.future.cancelled():
            waiter.future.exception()  # seen, even if a sibling's error came first

    # --- answers ----------------------------------------------------------------------------

    def _on_reply(self, subject: bytes, _reply: bytes, payload: bytes, header: bytes) -> None:
        token = subject[self._token_at :]
        waiter = self._pending.get(token)
        if waiter is None:
            return
        batch = waiter.batch
        if batch is not None and header and not wire.status_of(header):
            try:
                batch.records.append(wire.read_record(header, payload))
            except AntiphonError as error:
                self._end(token, waiter, error)
                return
            if batch.keep_headers:
                batch.headers.append(header)
            return
        del self._pending[token]
        self._give_back(waiter.cost)
        if batch is not None:
            batch.status = wire.status_of(header)
            batch.words = wire.status_text(header)
            batch.pending = wire.header_int(header, b"Nats-Num-Pending")
            batch.last_seq = wire.header_int(header, b"Nats-UpTo-Sequence")
        if not waiter.future.done():
            waiter.future.set_result(Reply(payload, header))

    def _end(self, token: bytes, waiter: _Waiter, error: Exception) -> None:
        if self._pending.pop(token, None) is None:
            return
        self._give_back(waiter.cost)
        if not waiter.future.done():
            waiter.future.set_exception(error)

    def _on_state(self, up: bool) -> None:  # noqa: FBT001 - a watcher's one argument
        if up:
            return
        for token, waiter in tuple(self._pending.items()):
            self._end(
                token, waiter, _broken(waiter, "the connection was lost before the answer came")
            )

    def _on_denied(self, subject: str, denial: EngineDenied) -> None:
        refused = subject.encode()
        for token, waiter in tuple(self._pending.items()):
            if waiter.subject == refused:
                self._end(token, waiter, EngineDenied(denial.message, hint=denial.hint))

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._loop.time()
        late = [item for item in self._pending.items() if item[1].deadline <= now]
        for token, waiter in late:
            self._end(token, waiter, _broken(waiter, "the NATS server did not answer in time"))
        if self._pending:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    # --- the window -------------------------------------------------------------------------

    async def _take_room(self, cost: int, deadline: float) -> None:
        """Reserve a part of the window, behind those who wait for theirs."""
        if not self._queue and self._room >= cost:
            self._room -= cost
            return
        gate: asyncio.Future[None] = self._loop.create_future()
        entry = (cost, gate)
        self._queue.append(entry)
        try:
            async with asyncio.timeout_at(deadline):
                await gate
        except BaseException as error:
            if gate.done() and not gate.cancelled():
                self._give_back(cost)  # it was admitted and the caller left in the same moment
            elif entry in self._queue:
                self._queue.remove(entry)
                self._let_in()
            if isinstance(error, TimeoutError):
                raise Unavailable("too many requests are in flight: nothing was sent") from error
            raise

    def _give_back(self, cost: int) -> None:
        self._room += cost
        if self._queue:
            self._let_in()

    def _let_in(self) -> None:
        queue = self._queue
        while queue and queue[0][0] <= self._room:
            cost, gate = queue.popleft()
            if not gate.done():
                self._room -= cost
                gate.set_result(None)

    # --- end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Fail every request that still waits."""
        self._on_state(up=False)
        for undo in self._undo:
            undo()
        self._connection.unlisten(self._listener)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None


async def _settled(waiter: _Waiter) -> Reply | AntiphonError:
    try:
        return await waiter.future
    except AntiphonError as error:
        return error


def _broken(waiter: _Waiter, why: str) -> Unavailable:
    if waiter.is_write:
        return OutcomeUnknown(f"{why}: the write may be stored", hint="read before deciding")
    return Unavailable(why)
