"""The gate's read service: answers members' reads as the server would, within their scope.

A member's request comes on `apg.<mesh>.<user>.get` or `….leader`, subjects on which only that
user may publish. The answer has the wire form of a direct get, or of the leader's message get,
and holds what the server's own answer would hold, less what the user's scope does not show.

Every record passes `VisibleSubjects.sees` on its way out, whatever was asked.

Bounds, besides those of every service (`request_guard`): batched reads in service per party and in
all, which make others wait, and the bytes of one answer. What the server takes for a long walk
counts as the party's work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from antiphon.core.authority.scope import Scope
from antiphon.core.authority.subject_rights import exceeds
from antiphon.core.record.branches import Branch
from antiphon.core.visible_subjects import VisibleSubjects, sight_of
from antiphon.engines.nats.connection.requester import Reply
from antiphon.engines.nats.gate.member_requests import MemberRequests
from antiphon.engines.nats.gate.request_guard import Limits, MemberRequest, Service
from antiphon.engines.nats.gate.scoped_reads import ScopedReads, own_log, status
from antiphon.engines.nats.member.read_protocol import (
    MAX_QUESTION_BYTES,
    BadReadRequest,
    ReadRequest,
    parse,
)
from antiphon.engines.nats.member.scoped_direct_get import (
    CHANGED,
    DENIED,
    PLACE_REST_S,
    READS_AT_ONCE,
)
from antiphon.errors import AntiphonError, EngineDenied, Malformed, RateLimited
from antiphon.ports import Engine

LIMITS: Final = Limits(
    room="reads",
    heard=512,
    of_party=READS_AT_ONCE,
    in_all=4096,
    request_bytes=MAX_QUESTION_BYTES,
    seconds=30.0,
    rest_s=PLACE_REST_S,
)
BATCHES_PER_PARTY = 2
BATCHES_AT_ONCE = 16
"""Times `scoped_reads.ANSWER_BYTES`: the size of all answers under way."""
_LONG_WALK_S = 0.02
"""A walk that takes longer keeps the server busy: it counts as work."""
_BAD_REQUEST, _FAILED, _BUSY = 408, 500, 503

_Read: TypeAlias = Callable[[VisibleSubjects, ReadRequest], Awaitable[list[Reply]]]


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
        log = own_log(engine)
        self._mesh = log.mesh
        self._hearing = hearing or MemberRequests(log.connection, log.mesh)
        self._readings = ScopedReads(log)
        self._reads: dict[str, _Read] = {
            "get": self._readings.direct,
            "leader": self._readings.leader,
        }
        self._scope_of = scope_of
        self._branches = branches
        self._batches_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._batches = asyncio.Semaphore(BATCHES_AT_ONCE)
        self.ready = asyncio.Event()
        """Set while it listens to requests."""

    async def run(self) -> None:
        """Serve until cancelled, over reconnects; `EngineDenied` if the server forbids it."""
        denied: asyncio.Future[EngineDenied] = asyncio.get_running_loop().create_future()

        def on_denied(error: EngineDenied) -> None:
            if not denied.done():
                denied.set_result(error)

        service = Service(
            verbs=tuple(self._reads),
            answer=self._answer,
            told=_told,
            limits=LIMITS,
            denied=on_denied,
        )
        async with self._hearing.serving(service):
            self.ready.set()
            try:
                refusal = await denied
            finally:
                self.ready.clear()
        raise refusal

    async def _answer(self, request: MemberRequest) -> list[Reply] | None:
        asked = parse(request.payload)
        if not asked.is_large:
            return await self._read(request, asked)
        own = self._batches_of.get(request.party) or asyncio.Semaphore(BATCHES_PER_PARTY)
        self._batches_of[request.party] = own
        async with own, self._batches:
            begun_s = time.monotonic()
            answers = await self._read(request, asked)
            walked_s = time.monotonic() - begun_s
            await request.send(answers)
        if walked_s > _LONG_WALK_S:
            request.visit.spend(walked_s)
        return None

    async def _read(self, request: MemberRequest, asked: ReadRequest) -> list[Reply]:
        scope = self._scope_of(request.user)
        if not scope.by_command:
            return [status(DENIED, "this key may read nothing on this mesh now")]
        visible = sight_of(self._mesh, self._branches, scope)
        if asked.reads != visible.shown and exceeds(asked.reads, visible.shown):
            return [status(CHANGED, "this key may read less now than its login says")]
        return await self._reads[request.verb](visible, asked)


def _told(error: AntiphonError) -> list[Reply]:
    match error:
        case BadReadRequest() | Malformed():
            return [status(_BAD_REQUEST, error.message)]
        case RateLimited():
            return [status(_BUSY, error.message)]
        case _:
            return [status(_FAILED, error.message)]
