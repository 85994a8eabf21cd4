"""The gate's mail service: receives members' requests about messages and sends the answers.

A request comes on `apg.<mesh>.<user>.mailput` or `….mail`, subjects on which only that user may
publish. What it means is the runtime's to say (`runtime.messages.mail_desk`). Answers go only to
the user's own inbox.

Bounds: one user's requests received, in hand per user, and in all. Beyond them the asker is told
that it asks too much; a flood is dropped by the server itself (`metered_subscription`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from antiphon.core.bus.subjects import MAIL_GATE
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.bus import NatsBus
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.gate.member_requests import MemberRequests, Service
from antiphon.engines.nats.gate.read_service import QUEUE, inbox_of
from antiphon.errors import Unavailable

HEARD = 512
"""Requests, and their KiB, of one user and verb in a quarter of a second."""
PER_USER = 256
MAX_IN_ALL = 8192
"""Most of them wait for a message."""

Answers: TypeAlias = Callable[[str, str, bytes], Awaitable[bytes]]
"""Given user, verb and request: the answer. It raises nothing."""


class MailService:
    """Serves one mesh's members, over a connection with all permissions."""

    def __init__(  # noqa: PLR0913 - one argument per thing that the runtime decides
        self,
        connection: Connection,
        hearing: MemberRequests,
        *,
        verbs: tuple[str, ...],
        answer: Answers,
        refusal: Callable[[str, str], bytes | None],
        busy: bytes,
        tell: NatsBus,
    ) -> None:
        """`refusal` has the answer to a user who asks too much, before anything is looked at.

        `busy` is the answer to what is more than is received; `tell` is a bus that members hear.
        """
        self._connection = connection
        self._hearing = hearing
        self._verbs = verbs
        self._answer = answer
        self._refusal = refusal
        self._busy = busy
        self._tell = tell
        self._in_hand: Counter[tuple[str, str]] = Counter()
        self._all = 0

    async def run(self) -> None:
        """Serve until cancelled, over reconnects."""
        async with asyncio.TaskGroup() as group:
            stops = [
                self._hearing.serve(
                    Service(verb, self._receiver(group, verb), HEARD, self._refuse, QUEUE)
                )
                for verb in self._verbs
            ]
            try:
                await self._hearing.round_trip()
                with contextlib.suppress(Unavailable):  # who waits then asks again by itself
                    await self._tell.publish(MAIL_GATE.at(), b"")
                await asyncio.get_running_loop().create_future()
            finally:
                for stop in stops:
                    stop()

    def _receiver(self, group: asyncio.TaskGroup, verb: str) -> wire.Handler:
        def on_request(subject: bytes, reply: bytes, payload: bytes, header: bytes) -> None:
            user = subject.decode().split(".")[2]
            if not reply.startswith(inbox_of(user).encode() + b"."):
                return
            refused = self._refusal(user, verb)
            if refused is not None:
                self._send(reply, refused)
                return
            if self._in_hand[user, verb] >= PER_USER or self._all >= MAX_IN_ALL:
                self._refuse(subject, reply, payload, header)
                return
            self._in_hand[user, verb] += 1
            self._all += 1
            group.create_task(self._serve(user, verb, reply, payload))

        return on_request

    async def _serve(self, user: str, verb: str, reply: bytes, payload: bytes) -> None:
        try:
            self._send(reply, await self._answer(user, verb, payload))
        finally:
            self._all -= 1
            self._in_hand[user, verb] -= 1
            if not self._in_hand[user, verb]:
                del self._in_hand[user, verb]

    def _refuse(self, subject: bytes, reply: bytes, _payload: bytes, _header: bytes) -> None:
        if reply.startswith(inbox_of(subject.decode().split(".")[2]).encode() + b"."):
            self._send(reply, self._busy)

    def _send(self, to: bytes, answer: bytes) -> None:
        if self._connection.up:
            self._connection.send(wire.pub(to, answer))
