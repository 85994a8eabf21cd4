"""One node's connection to the memory server, and everything that can happen on it.

Owns whether the server can be reached, what is in flight, and the translation of a missing answer
into `OutcomeUnknown` (writes) and `Unavailable` (reads, and what was certainly never sent).

Without faults a request is carried out at once and the caller then yields once, so that the
engine's order is the order of the calls and no caller can block the loop. With faults, a request
may be delayed, lost, duplicated, or answered too late.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from antiphon.engines.memory.faults import FINE, Fate, Faults
from antiphon.engines.memory.signal import Signal
from antiphon.errors import AntiphonError, OutcomeUnknown, Unavailable

T = TypeVar("T")

REQUEST_TIMEOUT_S = 5.0


class Reach:
    """Whether the server is up, and who is told when that changes."""

    def __init__(self) -> None:
        self.is_up = True
        self.connections: dict[Connection, None] = {}
        self.lines = 0
        """Connections ever made: numbers their inboxes."""

    def switch(self, *, is_up: bool) -> None:
        """Stop the server, or bring it back."""
        self.is_up = is_up
        for connection in list(self.connections):
            connection.refresh()


class End(Protocol):
    """Something that lives on a connection: a follower, a queue member, a subscription."""

    def attach(self) -> None:
        """The server can be reached again."""

    def detach(self) -> None:
        """The server cannot be reached."""

    def finish(self) -> None:
        """The connection is about to be closed cleanly."""

    def wake(self) -> None:
        """Check again: the connection was closed or resumed."""


class Connection:
    """The connection itself."""

    def __init__(self, reach: Reach, *, faults: Faults | None) -> None:
        if not reach.is_up:
            raise Unavailable("the engine is down", hint="start it, then connect again")
        self.faults = faults
        self.is_attached = True
        self.is_closed = False
        self.reconnects = 0
        self.is_paused = False
        self.is_clear = self.faults is None
        """Attached, running and without faults: the fast path."""
        self.ends: dict[End, None] = {}
        self._reach = reach
        self._is_severed = False
        self._resumed = Signal()
        self._held: list[Callable[[], None]] = []
        self._in_flight: dict[asyncio.Future[object], type[Unavailable]] = {}
        self._returning: asyncio.TimerHandle | None = None
        reach.lines += 1
        self.number = reach.lines
        reach.connections[self] = None

    # --- requests ---------------------------------------------------------------------------

    async def write(self, what: str, work: Callable[[], T], *, timeout_s: float | None = None) -> T:
        """Carry out a change; `OutcomeUnknown` if no answer came."""
        if self.is_clear:
            try:
                return work()
            finally:
                await asyncio.sleep(0)
        return await self._carry(what, lambda _fate: work(), timeout_s, OutcomeUnknown)

    async def write_several(
        self, what: str, work: Callable[[Fate], T], *, timeout_s: float | None = None
    ) -> T:
        """Carry out several changes, of which only a part may arrive, or be answered."""
        if self.is_clear:
            try:
                return work(FINE)
            finally:
                await asyncio.sleep(0)
        return await self._carry(what, work, timeout_s, OutcomeUnknown)

    async def read(self, what: str, work: Callable[[], T]) -> T:
        """Ask for something; `Unavailable` if no answer came."""
        return await self.read_lagging(what, lambda _lag: work())

    async def read_lagging(self, what: str, work: Callable[[int], T]) -> T:
        """As `read`, where a replica may answer that lacks the newest `lag` records."""
        if self.is_clear:
            try:
                return work(0)
            finally:
                await asyncio.sleep(0)
        return await self._carry(what, lambda fate: work(fate.lag), None, Unavailable)

    def post(self, what: str, work: Callable[[], None]) -> bool:
        """Carry out something without waiting; whether it was sent at all."""
        if self.is_clear:
            work()
            return True
        if not self.is_attached:
            return False
        fate = self.faults.request(what) if self.faults else FINE
        if not fate.lost:
            self._send(fate.delay_s, partial(self._land, work, fate))
        return not fate.lost

    def check(self) -> None:
        """Raise `Unavailable` unless something could be sent now."""
        if self.is_closed:
            raise Unavailable("this connection is closed", hint="connect again")
        if not self.is_attached:
            raise Unavailable("the engine is unreachable")

    async def running(self) -> None:
        """Wait out a pause; `Unavailable` once closed."""
        while self.is_paused:
            await self._resumed.wait()
        if self.is_closed:
            raise Unavailable("this connection is closed", hint="connect again")

    # --- what happens to it -----------------------------------------------------------------

    def sever(self) -> None:
        """Cut it: both sides notice at once."""
        self._is_severed = True
        self.refresh()

    def heal(self) -> None:
        """Let it come back."""
        self._is_severed = False
        self.refresh()

    def pause(self) -> None:
        """Freeze this node's side: nothing is lost, nothing moves."""
        self.is_paused = True
        self._update()

    def resume(self) -> None:
        """Continue where `pause` stopped."""
        self.is_paused = False
        self._update()
        held, self._held = self._held, []
        for work in held:
            work()
        self._resumed.fire()
        self._wake()

    def close(self, *, in_order: bool) -> None:
        """Close for good; if cleanly, what was not taken is given back first."""
        if self.is_closed:
            return
        if in_order:
            for end in list(self.ends):
                end.finish()
        self.is_closed = True
        self._reach.connections.pop(self, None)
        self.refresh()
        self._resumed.fire()
        self._wake()

    def refresh(self) -> None:
        """Attach or detach, by the present state of the server and the connection."""
        could = self._reach.is_up and not self._is_severed and not self.is_closed
        if not could:
            if self._returning is not None:
                self._returning.cancel()
                self._returning = None
            if self.is_attached:
                self._detach()
        elif not self.is_attached and self._returning is None:
            delay_s = self.faults.reconnect().delay_s if self.faults else 0.0
            if delay_s > 0:
                loop = asyncio.get_running_loop()
                self._returning = loop.call_later(delay_s, self._attach)
            else:
                self._attach()

    # --- inside -----------------------------------------------------------------------------

    def _attach(self) -> None:
        self._returning = None
        self.is_attached = True
        self.reconnects += 1
        self._update()
        for end in list(self.ends):
            end.attach()

    def _detach(self) -> None:
        self.is_attached = False
        self._update()
        for end in list(self.ends):
            end.detach()
        for answer, failure in list(self._in_flight.items()):
            if not answer.done():
                answer.set_exception(
                    failure("the connection to the engine was lost before it answered")
                )

    def _update(self) -> None:
        self.is_clear = self.is_attached and not self.is_paused and self.faults is None

    def _wake(self) -> None:
        for end in list(self.ends):
            end.wake()

    async def _carry(
        self,
        what: str,
        run: Callable[[Fate], T],
        timeout_s: float | None,
        failure: type[Unavailable],
    ) -> T:
        await asyncio.sleep(0)
        self.check()
        bound_s = REQUEST_TIMEOUT_S if timeout_s is None else timeout_s
        fate = self.faults.request(what) if self.faults else FINE
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        flight: asyncio.Future[object] = answer  # type: ignore[assignment] # only fails are set
        self._in_flight[flight] = failure
        if not fate.lost:
            self._send(fate.delay_s, partial(self._arrive, run, fate, answer))
        try:
            async with asyncio.timeout(bound_s):
                return await answer
        except TimeoutError:
            raise failure(f"no answer to {what} within {bound_s} s") from None
        finally:
            del self._in_flight[flight]

    def _send(self, delay_s: float, work: Callable[[], None]) -> None:
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._send, 0.0, work)
        elif self.is_paused:
            self._held.append(work)
        else:
            work()

    @property
    def _passes(self) -> bool:
        # What was sent before the node died or reconnected still arrives.
        return self._reach.is_up and not self._is_severed

    def _land(self, work: Callable[[], None], fate: Fate) -> None:
        if self._passes:
            work()
            if fate.twice:
                work()

    def _arrive(self, run: Callable[[Fate], T], fate: Fate, answer: asyncio.Future[T]) -> None:
        if not self._passes:
            return
        try:
            value = run(fate)
        except AntiphonError as error:
            settle: Callable[[], None] = partial(answer.set_exception, error)
        else:
            settle = partial(answer.set_result, value)
        if fate.twice:
            with suppress(AntiphonError):
                run(fate)
        if not fate.answer_lost:
            self._send(fate.answer_delay_s, partial(self._hear, answer, settle))

    def _hear(self, answer: asyncio.Future[T], settle: Callable[[], None]) -> None:
        if self.is_attached and not answer.done():
            settle()


class Feed(ABC, Generic[T]):
    """An end that is entered, iterated over, and left: what followers and subscriptions share."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._signal = Signal()
        """Fired when there may be something next."""
        self._is_over = False

    async def __aenter__(self) -> Self:
        await self._connection.running()
        self._connection.ends[self] = None
        if self._connection.is_attached:
            self.attach()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over = True
        self._connection.ends.pop(self, None)
        self.detach()
        self._signal.fire()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        await asyncio.sleep(0)
        while True:
            await self._connection.running()
            if self._is_over:
                raise StopAsyncIteration
            found = self._next()
            if found is not None:
                return found
            await self._signal.wait()

    @abstractmethod
    def _next(self) -> T | None:
        """What has arrived; None if nothing has."""

    @abstractmethod
    def attach(self) -> None:
        """See `End.attach`."""

    @abstractmethod
    def detach(self) -> None:
        """See `End.detach`."""

    def finish(self) -> None:
        """Nothing to give back."""

    def wake(self) -> None:
        """Check the connection again."""
        self._signal.fire()
