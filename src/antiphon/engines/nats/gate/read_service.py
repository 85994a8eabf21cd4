"""The gate's read service: answers members' reads as the server would, within their scope.

A member's request comes on `apg.<mesh>.<user>.get` or `….leader`, subjects on which only that
user may publish. The answer has the wire form of a direct get, or of the leader's message get,
and holds what the server's own answer would hold, less what the user's scope does not show.

Every record passes `VisibleSubjects.sees` on its way out, whatever was asked. Answers go only to
the user's own inbox, since this connection may publish anywhere and the asker chooses the reply
subject.

Bounds: one user's requests received, in service per user, batched reads in service per user and in
all, and the bytes of one answer. Beyond the first a request is dropped, beyond the second it is
refused with a reason; the others make it wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from antiphon.core.authority.scope import Scope
from antiphon.core.authority.subject_rights import exceeds
from antiphon.core.record.branches import Branch
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.requester import Reply
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.scoped_reads import ScopedReads, status
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.member.read_protocol import BadReadRequest, ReadRequest, parse
from antiphon.engines.nats.member.scoped_direct_get import (
    CHANGED,
    DENIED,
    PLACE_REST_S,
    READS_AT_ONCE,
)
from antiphon.engines.nats.member.scoped_log import ScopedLog
from antiphon.engines.nats.member.visible_subjects import VisibleSubjects, sight_of
from antiphon.errors import AntiphonError, EngineDenied, Misconfigured, Unavailable
from antiphon.ports import Engine

QUEUE = "gate"
"""Several gates of one mesh share its requests."""
READS_HEARD = 512
"""Messages, and KiB, of one user in a quarter of a second; more are dropped."""
BATCHES_PER_USER = 2
BATCHES_AT_ONCE = 16
"""Times `scoped_reads.ANSWER_BYTES`: the size of all answers under way."""
MAX_REFUSALS = 4096
"""Refusals that wait to be sent; beyond it they are dropped."""
REST = 3
"""Times what a large answer cost, until the next one for the same user: others have their turn."""
_BYTES_PER_S = 20e6
_FILTER_S = 10e-6
"""What the gate takes for an answer's bytes and a question's filters, roughly."""
_LONG_WALK_S = 0.02
MAX_REST_S = 1.0
_TURN_BYTES = 64 * 1024
_BAD_REQUEST, _FAILED, _BUSY = 408, 500, 503

_Read: TypeAlias = Callable[[VisibleSubjects, ReadRequest], Awaitable[list[Reply]]]
_log = logging.getLogger(__name__)


def inbox_of(user: str) -> str:
    """The subject below which a user gets its answers, and nobody else does."""
    return f"_I.{user}"


class _Desk:
    """What is in service for one user."""

    __slots__ = ("batches", "in_service")

    def __init__(self) -> None:
        self.in_service = 0
        self.batches = asyncio.Semaphore(BATCHES_PER_USER)


class ReadService:
    """Serves the reads of one mesh's members. `engine` must have all permissions."""

    def __init__(
        self,
        engine: Engine,
        scope_of: Callable[[str], Scope],
        branches: tuple[Branch, ...],
        *,
        hearing: MemberRequests | None = None,
    ) -> None:
        log = engine.log
        if not isinstance(log, NatsLog) or isinstance(log, ScopedLog):
            raise Misconfigured("the gate needs its own connection to NATS, with all permissions")
        self._mesh = log.mesh
        self._connection = log.connection
        self._hearing = hearing or MemberRequests(log.connection, log.mesh)
        self._readings = ScopedReads(log)
        self._scope_of = scope_of
        self._branches = branches
        self._desks: dict[str, _Desk] = {}
        self._batches = asyncio.Semaphore(BATCHES_AT_ONCE)
        self._refused: deque[bytes] = deque(maxlen=MAX_REFUSALS)
        self._refusing = asyncio.Event()
        self.ready = asyncio.Event()
        """Set while it listens to requests."""

    async def run(self) -> None:
        """Serve until cancelled, over reconnects; `EngineDenied` if the server forbids it."""
        denied: asyncio.Future[EngineDenied] = asyncio.get_running_loop().create_future()

        def on_denied(error: EngineDenied) -> None:
            if not denied.done():
                denied.set_result(error)

        async with asyncio.TaskGroup() as group:
            refusing = group.create_task(self._send_refusals())
            served = [
                self._hearing.serve(
                    Service(
                        verb,
                        self._answerer(group, read),
                        READS_HEARD,
                        self._refuse,
                        QUEUE,
                        on_denied,
                    )
                )
                for verb, read in (
                    ("get", self._readings.direct),
                    ("leader", self._readings.leader),
                )
            ]
            try:
                await self._hearing.round_trip()
                self.ready.set()
                refusal = await denied
            finally:
                self.ready.clear()
                for stop in served:
                    stop()
                refusing.cancel()
        raise refusal

    # --- requests ---------------------------------------------------------------------------

    def _answerer(self, group: asyncio.TaskGroup, read: _Read) -> wire.Handler:
        def on_request(subject: bytes, reply: bytes, payload: bytes, _header: bytes) -> None:
            user = subject.decode().split(".")[2]
            if not reply.startswith(inbox_of(user).encode() + b"."):
                _log.debug("%r asked for an answer on a subject that is not its own", user)
                return
            desk = self._desks.setdefault(user, _Desk())
            if desk.in_service >= READS_AT_ONCE:
                self._refuse(subject, reply, payload, _header)
                return
            desk.in_service += 1
            group.create_task(self._serve(user, desk, read, reply, payload))

        return on_request

    def _refuse(self, subject: bytes, reply: bytes, _payload: bytes, _header: bytes) -> None:
        if reply.startswith(inbox_of(subject.decode().split(".")[2]).encode() + b"."):
            self._refused.append(reply)
            self._refusing.set()

    async def _serve(
        self, user: str, desk: _Desk, read: _Read, reply: bytes, payload: bytes
    ) -> None:
        try:
            asked = parse(payload)
            if asked.is_large:
                async with desk.batches:
                    async with self._batches:
                        begun_s = time.monotonic()
                        answers = await self._answer(user, read, asked)
                        walked_s = time.monotonic() - begun_s
                        weight = await self._send(reply, answers)
                    await asyncio.sleep(_rest_s(asked, weight, walked_s))
            else:
                await self._send(reply, await self._answer(user, read, asked))
        except BadReadRequest as error:
            await self._send(reply, [status(_BAD_REQUEST, error.message)])
        except Exception:  # noqa: BLE001 - one request must not end the service
            _log.exception("a member's read failed")
            await self._send(reply, [status(_FAILED, "the gate failed; its log says how")])
        finally:
            asyncio.get_running_loop().call_later(PLACE_REST_S, self._leave, user, desk)

    def _leave(self, user: str, desk: _Desk) -> None:
        desk.in_service -= 1
        if not desk.in_service:
            self._desks.pop(user, None)

    async def _answer(self, user: str, read: _Read, asked: ReadRequest) -> list[Reply]:
        try:
            scope = self._scope_of(user)
            if not scope.by_command:
                return [status(DENIED, "this key may read nothing on this mesh now")]
            visible = sight_of(self._mesh, self._branches, scope)
            if asked.reads != visible.shown and exceeds(asked.reads, visible.shown):
                return [status(CHANGED, "this key may read less now than its login says")]
            return await read(visible, asked)
        except BadReadRequest:
            raise
        except AntiphonError as error:
            return [status(_FAILED, error.message)]

    # --- answers ----------------------------------------------------------------------------

    async def _send(self, to: bytes, answers: Iterable[Reply]) -> int:
        """Send an answer, no faster than the server takes it; returns its size."""
        connection = self._connection
        weight = checked = 0
        try:
            for answer in answers:
                if not connection.up:
                    break  # the asker notices by its own connection, or by a timeout
                connection.send(_frame(to, answer))
                weight += len(answer.payload) + len(answer.header)
                if weight - checked >= _TURN_BYTES:
                    checked = weight
                    connection.write_out()
                    await connection.have_room()
                    await asyncio.sleep(0)
        except Unavailable as error:
            _log.debug("an answer was lost: %s", error)
        return weight

    async def _send_refusals(self) -> None:
        busy = [status(_BUSY, "too many reads at once")]
        while True:
            await self._refusing.wait()
            self._refusing.clear()
            while self._refused:
                await self._send(self._refused.popleft(), busy)
                with contextlib.suppress(Unavailable):
                    await self._connection.have_room()


def _rest_s(asked: ReadRequest, weight: int, walked_s: float) -> float:
    """How long until this user's next large read: its cost to the gate, or else to the server."""
    filters = len(asked.multi_last) + len(asked.reads)
    cost_s = weight / _BYTES_PER_S + filters * _FILTER_S
    if walked_s > _LONG_WALK_S:
        cost_s = max(cost_s, walked_s)
    return min(REST * cost_s, MAX_REST_S)


def _frame(to: bytes, answer: Reply) -> bytes:
    if not answer.header:
        return wire.pub(to, answer.payload)
    size = len(answer.header)
    total = size + len(answer.payload)
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (to, size, total, answer.header, answer.payload)
