"""The engine's answers come late, by a seed: what `scripts/check shake --seed S` runs tests with.

On a quiet machine an answer is there before anything else happens, and a test may lean on that
without knowing. Here each request is carried out at once and told up to `LATE_S` later, in real and
in virtual time alike. A test that fails so names an order of events that does happen: mend the code
if it is wrong then, and the test if it only expected another. The delays of a test follow from
the seed and the test's name, so it fails alone as it failed among others:
`scripts/check shake --seed S -- tests/PATH::NAME`.
"""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from antiphon.engines.memory.engine import MemoryEngine
from antiphon.engines.memory.faults import FINE, Fate
from antiphon.engines.nats.connection.requester import Requester

SEED = os.environ.get("ANTIPHON_TESTS_SHAKE", "")
LATE_S = 0.05
REQUESTS = ("_ask", "_ask_all", "write_all", "write_batch")
"""The ways on which everything that is asked of a NATS server comes back."""


class LateAnswers:
    """`Faults` of the memory engine: nothing is lost, and answers take a while."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def request(self, _what: str) -> Fate:
        return Fate(answer_delay_s=self._chance.uniform(0, LATE_S))

    def delivery(self) -> Fate:
        return FINE  # a real server delivers in its order

    def notice(self) -> Fate:
        return FINE

    def bus(self) -> Fate:
        return FINE

    def reconnect(self) -> Fate:
        return FINE


def told_late(ask: Callable[..., Awaitable[Any]], chance: Random) -> Callable[..., Awaitable[Any]]:
    """The same request, whose answer comes later."""

    @functools.wraps(ask)
    async def asked(*args: Any, **kwargs: Any) -> Any:
        answer = await ask(*args, **kwargs)
        await asyncio.sleep(chance.uniform(0, LATE_S))
        return answer

    return asked


def shake(patch: pytest.MonkeyPatch, test: str) -> None:
    """Make answers late for one test."""
    chance = Random(f"{SEED} {test}")
    for name in REQUESTS:
        patch.setattr(Requester, name, told_late(getattr(Requester, name), chance))
    begin = MemoryEngine.__init__

    @functools.wraps(begin)
    def begin_with_faults(self: MemoryEngine, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("faults") is None:
            kwargs["faults"] = LateAnswers(chance)
        begin(self, *args, **kwargs)

    patch.setattr(MemoryEngine, "__init__", begin_with_faults)
