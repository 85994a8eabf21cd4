"""Calls to others that are made again: a few times, with growing pauses (spec §10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from antiphon.core.policy.backoff import backoff_ms
from antiphon.errors import EngineDenied, InboxFull, RateLimited, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.ports import Entropy

T = TypeVar("T")

RETRIES: Final = 3
"""After half a second, one and two, each with up to half a second of jitter."""


async def retrying(
    call: Callable[[], Awaitable[T]],
    entropy: Entropy,
    *,
    retries: int = RETRIES,
    after: type[Exception] = Unavailable,
) -> T:
    """What the call returns; where it gets no answer, it is made again, `retries` times at most.

    Only for calls that may be carried out twice. The last error is raised; a refusal is raised at
    once.
    """
    for attempt in range(retries):
        try:
            return await call()
        except (EngineDenied, InboxFull, RateLimited):
            raise
        except after:
            await asyncio.sleep(backoff_ms(attempt, chance=entropy.random()) / 1000)
    return await call()
