"""How much slower others' messages are while one sender floods an inbox."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon.core.messages.send_rate import PER_S
from antiphon.errors import AntiphonError
from antiphon.sdk.mesh import Mesh
from chaos.messages.process import KEY

PAUSE_S: Final = 0.02
PROBE_PAUSE_S: Final = 1.2 / PER_S
"""The probes of one sender stay below its own limit."""
WITHIN_S: Final = 30.0
TURNS: Final = 3
"""How often calm and flood are measured, one after the other."""


class Fairness(Struct, frozen=True):
    """Medians of the time from sending to handing out, in ms."""

    calm_ms: float
    flooded_ms: float
    same_inbox_ratio: float
    other_inbox_ratio: float
    engine_ms: float
    """A write to the engine alone, in the calm."""

    @property
    def ratio(self) -> float:
        return round(max(self.same_inbox_ratio, self.other_inbox_ratio), 2)


class _Receiver:
    """Reads one inbox; who sent a message of ours is told when it is here."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.waiting: dict[str, asyncio.Future[float]] = {}

    async def run(self) -> None:
        async for message in self.mesh.messages.inbox():
            waiting = self.waiting.pop(message.key, None)
            if waiting is not None:
                waiting.set_result(time.monotonic())
            with suppress(AntiphonError):
                await message.ack()


async def probe(sender: Mesh, receivers: list[_Receiver], count: int, of: str) -> list[list[float]]:
    """How long messages take to each receiver, in ms; one at a time."""
    took: list[list[float]] = [[] for _ in receivers]
    for number in range(count):
        for at, receiver in enumerate(receivers):
            key = f"probe.{of}.{at}.{number}"
            arrives: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            receiver.waiting[key] = arrives
            begun = time.monotonic()
            async with asyncio.timeout(WITHIN_S):
                await sender.messages.send(
                    receiver.mesh.messages.address, number, kind="chaos", key=key
                )
                took[at].append((await arrives - begun) * 1000)
            await asyncio.sleep(PROBE_PAUSE_S)
    return took


async def engine_p50_ms(owner: Mesh, count: int) -> float:
    """The median of one durable write."""
    store = owner.connection.engine.messages
    if store is None:
        raise RuntimeError("the owner reaches the store itself")
    took: list[float] = []
    revision = 0
    for _ in range(count):
        begun = time.monotonic()
        revision = await store.write(
            "probe.engine", b"x" * 600, note=b"{}", expected=revision, ttl_ms=60_000
        )
        took.append((time.monotonic() - begun) * 1000)
        await asyncio.sleep(PAUSE_S)
    return sorted(took)[count // 2]


async def measure(owner: Mesh, homes: list[Path], flooding: FloodSwitch, count: int) -> Fairness:
    """Calm, then flooded: `homes` are a sender, the flooded reader and another reader."""
    async with AsyncExitStack() as stack:
        meshes = [await stack.enter_async_context(Mesh.open(home=home, key=KEY)) for home in homes]
        sender, *others = meshes
        receivers = [_Receiver(one) for one in others]
        reading = [asyncio.ensure_future(one.run()) for one in receivers]
        try:
            await probe(sender, receivers, 5, "warm")
            engine_ms = await engine_p50_ms(owner, count)
            calm: list[list[float]] = [[] for _ in receivers]
            flooded: list[list[float]] = [[] for _ in receivers]
            for turn in range(TURNS):  # in turns: a machine is not equally busy all the time
                some = await probe(sender, receivers, count // TURNS, f"calm{turn}")
                _add(calm, some)
                await flooding.start()
                _add(flooded, await probe(sender, receivers, count // TURNS, f"flood{turn}"))
                await flooding.stop()
        finally:
            await flooding.stop()
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
    before, after = ([sorted(one)[len(one) // 2] for one in each] for each in (calm, flooded))
    return Fairness(max(before), max(after), after[0] / before[0], after[1] / before[1], engine_ms)


def _add(all_: list[list[float]], some: list[list[float]]) -> None:
    for each, more in zip(all_, some, strict=True):
        each.extend(more)


class FloodSwitch:
    """Starts and stops the flood."""

    async def start(self) -> None:
        """Return when the flooder has been told to stop at least once."""

    async def stop(self) -> None:
        """End it; safe twice."""
