"""Three ways to write a group of records, each with a compare-and-set of its own.

single   publishes that are in flight together, each with its answer
batch    an atomic batch: all or none, one answer
fast     fast ingest: the engine answers in between, and at the end
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from nats.aio.client import Client

PAYLOAD: Final = b"x" * 600
"""What a signed record weighs."""
ANSWERED_WITHIN_S: Final = 20.0
NEW: Final = {"Nats-Expected-Last-Subject-Sequence": "0"}
_numbers = itertools.count()

Way = Callable[[Client, int], Awaitable[None]]


def subject() -> str:
    """One that nothing is stored on yet."""
    return f"ops.{next(_numbers)}"


def _checked(answer: bytes) -> None:
    if "error" in (told := json.loads(answer)):
        raise SystemExit(f"the engine refused a write: {told['error']}")


async def single(client: Client, size: int) -> None:
    async def one() -> None:
        reply = await client.request(subject(), PAYLOAD, timeout=ANSWERED_WITHIN_S, headers=NEW)
        _checked(reply.data)

    await asyncio.gather(*(one() for _ in range(size)))


async def batch(client: Client, size: int) -> None:
    name = secrets.token_hex(12)
    for at in range(1, size + 1):
        headers = {**NEW, "Nats-Batch-Id": name, "Nats-Batch-Sequence": str(at)}
        if at < size:
            await client.publish(subject(), PAYLOAD, headers=headers)
            continue
        headers["Nats-Batch-Commit"] = "1"
        reply = await client.request(subject(), PAYLOAD, timeout=ANSWERED_WITHIN_S, headers=headers)
        _checked(reply.data)


async def fast(client: Client, size: int) -> None:
    first, middle, last = range(3)
    inbox = f"{client.new_inbox()}.{secrets.token_hex(6)}"
    answers = await client.subscribe(f"{inbox}.>")
    try:
        for at in range(1, size + 1):
            step = first if at == 1 else last if at == size else middle
            reply = f"{inbox}.100.ok.{at}.{step}.$FI"
            await client.publish(subject(), PAYLOAD, reply=reply, headers=NEW)
            if at == 1:
                _checked((await answers.next_msg(ANSWERED_WITHIN_S)).data)
        while b'"batch"' not in (answer := (await answers.next_msg(ANSWERED_WITHIN_S)).data):
            _checked(answer)
        _checked(answer)
    finally:
        await answers.unsubscribe()


WAYS: Final[dict[str, Way]] = {"single": single, "batch": batch, "fast": fast}
