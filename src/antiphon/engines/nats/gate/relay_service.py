"""The gate's relay service: appends records that members send it to the log (`relay_protocol`).

A record comes on `apg.<mesh>.<user>.post`, a subject on which only that user may publish. The
runtime decides whether to store it; what is not accepted never reaches the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from antiphon.engines.nats.gate.request_guard import Limits, MemberRequest, Service
from antiphon.engines.nats.gate.scoped_reads import own_log
from antiphon.engines.nats.log.streams import MAX_RECORD_BYTES
from antiphon.engines.nats.member import relay_protocol
from antiphon.ports import Engine

LIMITS: Final = Limits(
    room="records",
    heard=64,
    of_party=4,
    in_all=256,
    request_bytes=MAX_RECORD_BYTES,
    seconds=30.0,
)

Accepts: TypeAlias = Callable[[str, bytes], Awaitable[tuple[str, str, int]]]
"""Given user and record: its subject, message id and predecessor, or an error with the reason."""


def relay_service(engine: Engine, accepts: Accepts) -> Service:
    """Appends what `accepts` admits. `engine` must have all permissions."""
    log = own_log(engine)

    async def answer(asked: MemberRequest) -> bytes:
        subject, message_id, expected_last = await accepts(asked.user, asked.payload)
        seq = await log.append(
            subject, asked.payload, message_id=message_id, expected_last=expected_last
        )
        return relay_protocol.stored(seq)

    verbs = (relay_protocol.VERB,)
    return Service(verbs=verbs, answer=answer, told=relay_protocol.told, limits=LIMITS)
