"""The reads of a member whose delegation covers some kinds only: they go to the gate.

`scoped_log` explains what the gate answers, and why a request names all that its asker may read.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from antiphon.core.visible_subjects import Reader
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.requester import Batch, Reply, Requester
from antiphon.engines.nats.log.direct_get import NO_RESPONDERS, DirectGet
from antiphon.engines.nats.log.newest_records import Held
from antiphon.engines.nats.log.streams import log_name
from antiphon.engines.nats.member.read_protocol import MAX_SEQS
from antiphon.errors import EngineDenied, Unavailable
from antiphon.ports import Record

GATE_TIMEOUT_S = 5.0
READS_AT_ONCE = 32
"""Requests of one user that the gate serves at a time; a reader keeps to it by itself."""
PLACE_REST_S = 0.03
"""Until an answered request's slot is free again: a user gets some thousand answers a second."""
DENIED = 403
CHANGED = 409
"""What the asker takes for its scope is not within it (any more)."""
_NO_GATE_TRIES = 6
_BUSY_TRIES = 20
"""Within about eight seconds: a gate that says that it is busy will have time again."""
_BUSY_PAUSE_S = 0.05
_BUSY_PAUSE_MOST_S = 0.5
ASK_FOR_MORE = (
    "'antiphon who' shows who may do what; the mesh's owner grants more: antiphon delegate NODE"
)
_T = TypeVar("_T")
_encode = msgspec.json.Encoder().encode


class ScopedDirectGet(DirectGet):
    """`DirectGet`, answered by the gate."""

    def __init__(
        self,
        connection: Connection,
        requester: Requester,
        mesh: str,
        reader: Reader,
    ) -> None:
        super().__init__(requester, log_name(mesh))
        self._connection = connection
        self.visible = reader.visible(mesh)
        self._direct = gate_subject(mesh, reader.user, "get").encode()
        self._leader = gate_subject(mesh, reader.user, "leader").encode()
        self._window = asyncio.Semaphore(READS_AT_ONCE)

    async def at_each(self, seqs: Sequence[int]) -> Batch:
        """What is at these sequences; `pending` of them, the last, were not read."""
        return await self._collect({"seqs": seqs})

    async def held_at_each(self, seqs: Sequence[int]) -> dict[int, Held]:
        """What is visible at these sequences, with its headers, in as few requests as allowed."""
        found: dict[int, Held] = {}
        left = list(seqs)
        while left:
            batch = await self._collect({"seqs": left[:MAX_SEQS]}, keep_headers=True)
            for pair in zip(batch.records, batch.headers, strict=True):
                found[pair[0].seq] = Held(*pair)
            del left[: len(left[:MAX_SEQS]) - batch.pending]
        return found

    async def leader_reaches(self, seq: int) -> bool:
        """Whether the stream's leader holds anything at `seq` or above."""
        request = {"seq": seq, "next_by_subj": self.visible.everything}
        reply = await self._ask_gate(self._leader, _encode(request))
        return (
            wire.header_int(reply.header, b"Nats-Last-Sequence") >= seq
            or self._from_leader(reply) is not None
        )

    async def held_after(self, seq: int, subject: str) -> Held | None:
        """The first matching record above `seq`, with its headers."""
        request = self._stated({"seq": seq + 1, "next_by_subj": subject})
        return self._one(await self._get(_encode(request)))

    async def _get(self, body: bytes) -> Reply:
        return await self._ask_gate(self._direct, body)

    def _stated(self, request: dict[str, Any]) -> dict[str, Any]:
        """A request for the whole log says which subjects that is.

        The gate goes by the log, this reader by its login. Where the gate would leave out more
        than the login does, a reader that continues after the answer would have a gap.
        """
        is_whole = request.get("next_by_subj", "") in {"", self.visible.everything}
        return (
            {**request, "reads": self.visible.shown} if is_whole and "seq" in request else request
        )

    async def _ask_leader(self, request: dict[str, Any]) -> Record | None:
        stated = self._stated(request) if "next_by_subj" in request else request
        return self._from_leader(await self._ask_gate(self._leader, _encode(stated)))

    def _from_leader(self, reply: Reply) -> Record | None:
        status = wire.status_of(reply.header)
        if status:
            raise self._refusal(status, wire.status_text(reply.header))
        return super()._from_leader(reply)

    async def _collect(self, request: dict[str, Any], *, keep_headers: bool = False) -> Batch:
        body = _encode(self._stated(request))
        batch = await self._patiently(
            lambda: self._requester.collect(
                self._direct, body, timeout_s=GATE_TIMEOUT_S, keep_headers=keep_headers
            ),
            lambda answer: _tries(answer.status, answer.words),
        )
        self._check(batch)
        return batch

    async def _ask_gate(self, subject: bytes, body: bytes) -> Reply:
        return await self._patiently(
            lambda: self._requester.request(subject, body, timeout_s=GATE_TIMEOUT_S),
            lambda reply: _tries(wire.status_of(reply.header), wire.status_text(reply.header)),
        )

    async def _patiently(
        self, ask: Callable[[], Coroutine[Any, Any, _T]], tries: Callable[[_T], int]
    ) -> _T:
        """Ask, and ask again while the gate is busy, or does not hear this user.

        It drops requests of a user that asks for too much, for a moment; no gate looks the same.
        """
        attempt = 0
        while True:
            attempt += 1
            await self._window.acquire()
            try:
                answer = await ask()
            except EngineDenied:
                raise
            except Unavailable as error:
                if not self._connection.up:
                    raise
                raise no_gate(error.message) from error
            finally:
                # A little later than there: what is on its way then finds its slot free.
                later_s = 1.2 * PLACE_REST_S
                asyncio.get_running_loop().call_later(later_s, self._window.release)
            if attempt >= tries(answer):
                return answer
            pause_s = min(attempt * _BUSY_PAUSE_S, _BUSY_PAUSE_MOST_S)
            await asyncio.sleep(pause_s * (0.5 + secrets.randbelow(1000) / 1000))

    def _refusal(self, status: int, words: str) -> Unavailable:
        if status == DENIED:
            return EngineDenied(f"the mesh's gate refused it: {words[4:]}", hint=ASK_FOR_MORE)
        if status == CHANGED:
            return Unavailable("what this key may read has changed; another login is on its way")
        if status == NO_RESPONDERS and not _is_busy(status, words):
            return no_gate("no responders")
        return Unavailable(f"the mesh's gate could not read: {words}")


def _is_busy(status: int, words: str) -> bool:
    """The gate's refusals have a text; the server's own 503 has none."""
    return status == NO_RESPONDERS and len(words) > len("503")


def _tries(status: int, words: str) -> int:
    """How often to ask in all, after this answer."""
    if status != NO_RESPONDERS:
        return 1
    return _BUSY_TRIES if _is_busy(status, words) else _NO_GATE_TRIES


def no_gate(why: str) -> Unavailable:
    """The error where no gate serves the mesh's members."""
    return Unavailable(
        f"the mesh's gate does not answer ({why}): is 'antiphon up' running on the mesh's machine?",
        hint="start it there, and try again",
    )
