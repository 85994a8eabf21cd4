"""What the gate asks about every request of a member, before and after a service answers it.

The same questions for all services, in this order: whose request is it, does its answer go to that
user's own inbox, is it too large, is too much in hand already, is it this party's turn. Then the
service answers, within a time. What a service does not answer is told to the asker in words, and a
failure that nobody foresaw is logged with its user and verb. No request can end a service.

The process's `Guard` counts, by party: whoever owns several logins has one share, over HTTP, too. A
service says as data how much it takes (`Limits`), and has one method that answers.

Answers go only to the user's own inbox, since this connection may publish anywhere and the asker
chooses the reply subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
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
from antiphon.guard import Guard, Visit, Who
from antiphon.guard import Limits as SharedLimits
from antiphon.guard.guard import BUSY_S

QUEUE: Final = "gate"
"""Several gates of one mesh share its requests."""
MAX_REFUSALS: Final = 4096
"""That wait to be sent; beyond it the oldest are dropped."""
LOG_EVERY_S: Final = 60.0
"""A failure of one user and verb is logged so often; it can fail as often as it asks."""
MAX_LOGGED: Final = 1024
_TURN_BYTES: Final = 64 * 1024

Answer: TypeAlias = bytes | Sequence[Reply] | None
"""One message, several, or none."""
Handlers: TypeAlias = tuple[wire.Handler, wire.Handler]
_log = logging.getLogger(__name__)


class Limits(SharedLimits, frozen=True, kw_only=True):
    """How much of one service members may ask for."""

    heard: int
    """Messages, and KiB, of one user and verb in a quarter of a second; the server drops more."""
    rest_s: float = 0.0
    """How long a request keeps its place after its answer."""


class MemberRequest:
    """What one member asks. `verb` is the subscription's, `subject` what was published on."""

    __slots__ = ("_guard", "header", "payload", "reply", "subject", "user", "verb", "visit", "who")

    def __init__(self, guard: RequestGuard, verb: str, message: tuple[bytes, ...]) -> None:
        subject, self.reply, self.payload, self.header = message
        self._guard = guard
        self.verb = verb
        self.subject = wire.read_subject(subject)
        self.user = self.subject.split(".")[2]
        self.who = Who(party=guard.party_of(self.user))
        self.visit: Visit

    @property
    def party(self) -> str:
        """For whom it counts."""
        return self.who.party

    async def send(self, answer: Answer) -> int:
        """Send an answer, no faster than the server takes it; returns its size."""
        return await self._guard.send(self.reply, answer)


class Service(Struct, frozen=True, kw_only=True):
    """What is served under some verbs, which share its limits."""

    verbs: tuple[str, ...]
    answer: Callable[[MemberRequest], Coroutine[Any, Any, Answer]]
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
    """Has members' requests answered that the guard admits."""

    def __init__(
        self, connection: Connection, party_of: Callable[[str], str], guard: Guard
    ) -> None:
        """`connection` sends the answers; `party_of` has the party of a user."""
        self.party_of = party_of
        self._connection = connection
        self._guard = guard
        self._refusals: deque[tuple[bytes, Answer]] = deque(maxlen=MAX_REFUSALS)
        self._refused = asyncio.Event()
        self._logged: dict[tuple[str, str], float] = {}

    def in_hand(self, limits: Limits, party: str) -> int:
        """How many requests of a party are being answered."""
        return self._guard.in_hand(limits, Who(party=party))

    def handlers(
        self, service: Service, verb: str, begin: Callable[[Coroutine[Any, Any, None]], None]
    ) -> Handlers:
        """For what comes on a verb, and what is more than is received; `begin` starts a task."""

        def on_request(*message: bytes) -> None:
            if (request := self._own(MemberRequest(self, verb, message), service)) is None:
                return
            try:
                self._admit(service, request)
            except Exception as error:  # noqa: BLE001 - one request must not end the service
                self._tell(service, request, error)
                return
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

    def _admit(self, service: Service, request: MemberRequest) -> None:
        """Raises why a request is not served."""
        limits, size = service.limits, len(request.payload)
        if size > limits.request_bytes:
            raise Malformed(
                f"a request of {size} bytes is too large: {limits.request_bytes} are allowed",
                reason="too_large",
            )
        if (limited := service.limit_on(request)) is not None:
            raise limited
        request.visit = self._guard.admit(limits, request.who, size)

    async def _serve(self, service: Service, request: MemberRequest) -> None:
        visit, limits = request.visit, service.limits
        try:
            async with asyncio.timeout(limits.seconds):
                await request.send(await visit.work(service.answer(request)))
        except Exception as error:  # noqa: BLE001 - one request must not end the service
            self._tell(service, request, error)
        finally:
            if limits.rest_s:
                asyncio.get_running_loop().call_later(limits.rest_s, visit.leave)
            else:
                visit.leave()

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
