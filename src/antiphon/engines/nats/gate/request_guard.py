"""What the gate asks about every request of a member, before and after a service answers it.

The same questions for all services, in this order: whose request is it, does its answer go to that
user's own inbox, is it too large, is too much in hand already. Then the service answers, within a
time. What a service does not answer is told to the asker in words, and a failure that nobody
foresaw is logged with its user and verb. No request can end a service.

Limits are counted by party: whoever owns several logins has one share. A service says as data how
much it takes (`Limits`), and has one method that answers.

Answers go only to the user's own inbox, since this connection may publish anywhere and the asker
chooses the reply subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.requester import Reply
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    Malformed,
    OutcomeUnknown,
    RateLimited,
    Unavailable,
)

QUEUE: Final = "gate"
"""Several gates of one mesh share its requests."""
PARTY_BYTES: Final = 8 * 1024 * 1024
ALL_BYTES: Final = 128 * 1024 * 1024
"""Requests in hand, of one party and in all, over all services."""
MAX_REFUSALS: Final = 4096
"""That wait to be sent; beyond it the oldest are dropped."""
BUSY_S: Final = 0.25
LOG_EVERY_S: Final = 60.0
"""A failure of one user and verb is logged so often; it can fail as often as it asks."""
MAX_LOGGED: Final = 1024
_TURN_BYTES: Final = 64 * 1024
_ALL, _BYTES = "", "bytes"

Answer: TypeAlias = bytes | Sequence[Reply] | None
"""One message, several, or none."""
Handlers: TypeAlias = tuple[wire.Handler, wire.Handler]
_log = logging.getLogger(__name__)


class Limits(Struct, frozen=True, kw_only=True):
    """How much of one service members may ask for."""

    heard: int
    """Messages, and KiB, of one user and verb in a quarter of a second; the server drops more."""
    of_party: int
    in_all: int
    """Requests in hand, of one party and of everybody."""
    request_bytes: int
    seconds: float
    """How long one answer may take."""
    rest_s: float = 0.0
    """How long a request keeps its place after its answer."""


class MemberRequest:
    """What one member asks. `verb` is the subscription's, `subject` what was published on."""

    __slots__ = ("_guard", "header", "party", "payload", "reply", "subject", "user", "verb")

    def __init__(self, guard: RequestGuard, verb: str, message: tuple[bytes, ...]) -> None:
        subject, self.reply, self.payload, self.header = message
        self._guard = guard
        self.verb = verb
        self.subject = wire.read_subject(subject)
        self.user = self.subject.split(".")[2]
        self.party = guard.party_of(self.user)

    async def send(self, answer: Answer) -> int:
        """Send an answer, no faster than the server takes it; returns its size."""
        return await self._guard.send(self.reply, answer)


class Service(Struct, frozen=True, kw_only=True):
    """What is served under some verbs, which share its limits."""

    verbs: tuple[str, ...]
    answer: Callable[[MemberRequest], Awaitable[Answer]]
    told: Callable[[AntiphonError], Answer]
    """An error in the words of this protocol."""
    limits: Limits
    limit_on: Callable[[MemberRequest], AntiphonError | None] = lambda _: None
    """Why this asker has no more, before its request is looked at."""
    is_silent: bool = False
    """Whether requests without a place for an answer are served too."""
    queue: str = QUEUE
    denied: Callable[[EngineDenied], None] | None = None


class RequestGuard:
    """Counts requests in hand, and has them answered."""

    def __init__(self, connection: Connection, party_of: Callable[[str], str]) -> None:
        """`connection` sends the answers; `party_of` has the party of a user."""
        self.party_of = party_of
        self._connection = connection
        self._held: Counter[tuple[str, str]] = Counter()
        """In hand, by service and party; with no party: in all. And their bytes."""
        self._refusals: deque[tuple[bytes, Answer]] = deque(maxlen=MAX_REFUSALS)
        self._refused = asyncio.Event()
        self._logged: dict[tuple[str, str], float] = {}

    def handlers(
        self, service: Service, verb: str, begin: Callable[[Coroutine[Any, Any, None]], None]
    ) -> Handlers:
        """For what comes on a verb, and what is more than is received; `begin` starts a task."""

        def on_request(*message: bytes) -> None:
            if (request := self._own(MemberRequest(self, verb, message), service)) is None:
                return
            try:
                self._check(service, request)
            except Exception as error:  # noqa: BLE001 - one request must not end the service
                self._tell(service, request, error)
                return
            self._count(service, request, 1)
            begin(self._serve(service, request))

        def on_flood(*message: bytes) -> None:
            if (request := self._own(MemberRequest(self, verb, message), service)) is not None:
                self._tell(service, request, _busy())

        return on_request, on_flood

    def _own(self, request: MemberRequest, service: Service) -> MemberRequest | None:
        """The request, if its answer goes to the user's own inbox."""
        is_silent = service.is_silent and not request.reply
        if is_silent or request.reply.startswith(b"_I.%b." % request.user.encode()):
            return request
        _log.debug("%r asked for an answer on a subject that is not its own", request.user)
        return None

    def _check(self, service: Service, request: MemberRequest) -> None:
        """Raises why a request is not served."""
        limits, name, size = service.limits, service.verbs[0], len(request.payload)
        if size > limits.request_bytes:
            raise Malformed(
                f"a request of {size} bytes is too large: {limits.request_bytes} are allowed",
                reason="too_large",
            )
        for party, most, most_bytes in (
            (request.party, limits.of_party, PARTY_BYTES),
            (_ALL, limits.in_all, ALL_BYTES),
        ):
            if self._held[name, party] >= most or self._held[_BYTES, party] + size > most_bytes:
                raise _busy()
        limited = service.limit_on(request)
        if limited is not None:
            raise limited

    def _count(self, service: Service, request: MemberRequest, change: int) -> None:
        size = change * len(request.payload)
        for party in (request.party, _ALL):
            for name, by in ((service.verbs[0], change), (_BYTES, size)):
                self._held[name, party] += by
                if not self._held[name, party]:
                    del self._held[name, party]

    async def _serve(self, service: Service, request: MemberRequest) -> None:
        try:
            async with asyncio.timeout(service.limits.seconds):
                await request.send(await service.answer(request))
        except Exception as error:  # noqa: BLE001 - one request must not end the service
            self._tell(service, request, error)
        finally:
            loop, rest_s = asyncio.get_running_loop(), service.limits.rest_s
            if rest_s:
                loop.call_later(rest_s, self._count, service, request, -1)
            else:
                self._count(service, request, -1)

    def _explained(
        self, error: Exception, service: Service, request: MemberRequest
    ) -> AntiphonError:
        """The error for the asker; one that nobody foresaw is logged."""
        if isinstance(error, AntiphonError):
            return error
        if isinstance(error, TimeoutError):
            return OutcomeUnknown(f"the gate did not finish it in {service.limits.seconds:g} s")
        key, now_s = (request.user, request.verb), asyncio.get_running_loop().time()
        if now_s - self._logged.get(key, -LOG_EVERY_S) >= LOG_EVERY_S:
            if len(self._logged) >= MAX_LOGGED:
                self._logged.clear()
            self._logged[key] = now_s
            _log.error("the request %s of %s failed", request.verb, request.user, exc_info=error)
        return Unavailable("the gate failed; its log says how")

    # --- answers ----------------------------------------------------------------------------

    async def send(self, to: bytes, answer: Answer) -> int:
        """See `MemberRequest.send`."""
        connection = self._connection
        replies = (Reply(answer, b""),) if isinstance(answer, bytes) else answer or ()
        weight = checked = 0
        try:
            for reply in replies if to else ():
                if not connection.up:
                    break  # the asker notices by its own connection, or by a timeout
                connection.send(_frame(to, reply, connection.max_payload_bytes))
                weight += len(reply.payload) + len(reply.header)
                if weight - checked >= _TURN_BYTES:
                    checked = weight
                    connection.write_out()
                    await connection.have_room()
                    await asyncio.sleep(0)
        except Unavailable as error:
            _log.debug("an answer was lost: %s", error)
        return weight

    def _tell(self, service: Service, request: MemberRequest, error: Exception) -> None:
        """An error, in its turn: a member that asks faster than it reads gets no more."""
        try:
            answer = service.told(self._explained(error, service, request))
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the error of a request %s cannot be told: %r", request.verb, error)
            return
        self._refusals.append((request.reply, answer))
        self._refused.set()

    async def send_refusals(self) -> None:
        """Send what is told, until cancelled."""
        while True:
            await self._refused.wait()
            self._refused.clear()
            while self._refusals:
                with contextlib.suppress(AntiphonError):
                    await self.send(*self._refusals.popleft())
                    await self._connection.have_room()


def _busy() -> RateLimited:
    return RateLimited("too many requests at once", retry_s=BUSY_S)


def _frame(to: bytes, answer: Reply, most_bytes: int) -> bytes:
    size = len(answer.header)
    total = size + len(answer.payload)
    if total > most_bytes:  # or the server would close the connection
        raise Malformed(f"the answer has {total} bytes; ask for less", reason="too_large")
    if not size:
        return wire.pub(to, answer.payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (to, size, total, answer.header, answer.payload)
