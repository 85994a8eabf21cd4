"""The gate's message service: members' requests about messages.

A request comes on one of two verbs, `apg.<mesh>.<user>.messageput` for messages and `….messages`
for the rest, subjects on which only that user may publish. What it means is the runtime's to say
(`runtime.messages.message_desk`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, Protocol

from antiphon.engines.nats.gate.request_guard import Limits, MemberRequest, Service
from antiphon.errors import AntiphonError

PUTS: Final = Limits(
    room="messages sent",
    heard=512,
    of_party=256,
    in_all=1024,
    request_bytes=80 * 1024,
    seconds=30.0,
)
READS: Final = Limits(
    room="messages read",
    heard=128,
    of_party=256,
    in_all=8192,
    request_bytes=32 * 1024,
    seconds=90.0,
)
"""Most of them wait for a message, up to a minute. 512 a second are more than an agent needs, and
few enough that others do not notice a member that never stops asking."""


class Desk(Protocol):
    """Answers requests about messages."""

    def limit_on(self, party: str, verb: str) -> AntiphonError | None:
        """Why this party has no more now, or None."""

    def answer(
        self, user: str, party: str, verb: str, payload: bytes
    ) -> Coroutine[Any, Any, bytes]:
        """The answer to one request; raises what the asker is told."""

    def told(self, error: AntiphonError) -> bytes:
        """An error as the asker gets it."""


def message_services(desk: Desk, *, put: str, messages: str) -> tuple[Service, ...]:
    """One for messages, and one for everything else: neither keeps its asker from the other."""

    async def answer(asked: MemberRequest) -> bytes:
        return await desk.answer(asked.user, asked.party, asked.verb, asked.payload)

    return tuple(
        Service(
            verbs=(verb,),
            answer=answer,
            told=desk.told,
            limits=limits,
            limit_on=lambda asked: desk.limit_on(asked.party, asked.verb),
        )
        for verb, limits in ((put, PUTS), (messages, READS))
    )
