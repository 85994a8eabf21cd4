"""The switch between places: carries their packets, or loses and delays them as it is told.

Whatever a place sends comes out of its line here, packet by packet. Troubles lie on directed pairs
of places, so a line can be cut one way only, and several may lie on the same pair: a packet must
get through all of them. A packet that is late may be overtaken, as on any network.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

from msgspec import Struct

from chaos.namespaces import Place

MAX_PACKET_BYTES: Final = 65_535
MAX_AT_ONCE: Final = 64
"""Packets from one place before others have their turn."""
MAX_ON_THE_WAY: Final = 4_096
"""Late packets that are kept; further ones are lost, as in any full buffer."""
_IPV4_HEADER_BYTES: Final = 20

Pair = tuple[bytes, bytes]
"""From one address to another, packed."""


class Trouble(Struct, frozen=True, kw_only=True):
    """What happens to packets between some places."""

    pairs: frozenset[Pair]
    loss: float = 0.0
    """Of all packets, the share that never arrives."""
    late_s: tuple[float, float] = (0.0, 0.0)
    """Each packet is late by something in between."""


class Switch:
    """Joins places for as long as the context lasts."""

    def __init__(self, places: Sequence[Place], chance: random.Random) -> None:
        self._lines = {place.packed: place.line for place in places}
        self._chance = chance
        self._troubles: list[Trouble] = []
        self._on_the_way: set[asyncio.TimerHandle] = set()
        self.carried = self.lost = 0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for line in self._lines.values():
            loop.add_reader(line, self._take, line)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for line in self._lines.values():
            loop.remove_reader(line)
        for timer in self._on_the_way:
            timer.cancel()
        self._on_the_way.clear()

    @contextmanager
    def trouble(
        self,
        pairs: Iterable[Pair],
        *,
        loss: float = 0.0,
        late_s: tuple[float, float] = (0.0, 0.0),
    ) -> Iterator[None]:
        """Lies on these pairs for as long as the context lasts."""
        trouble = Trouble(pairs=frozenset(pairs), loss=loss, late_s=late_s)
        self._troubles.append(trouble)
        try:
            yield
        finally:
            self._troubles = [one for one in self._troubles if one is not trouble]

    def _take(self, line: int) -> None:
        for _ in range(MAX_AT_ONCE):
            try:
                packet = os.read(line, MAX_PACKET_BYTES)
            except OSError:  # nothing more, or the device is down
                return
            self._pass_on(packet)

    def _pass_on(self, packet: bytes) -> None:
        if len(packet) < _IPV4_HEADER_BYTES or packet[0] >> 4 != 4:
            return  # the kernel's own questions about IPv6
        pair = packet[12:16], packet[16:20]
        to = self._lines.get(pair[1])
        if to is None:
            return
        late_s = 0.0
        for trouble in self._troubles:
            if pair in trouble.pairs:
                if self._chance.random() < trouble.loss:
                    self.lost += 1
                    return
                late_s += self._chance.uniform(*trouble.late_s)
        if late_s:
            self._keep(packet, to, late_s)
        else:
            self._deliver(packet, to)

    def _keep(self, packet: bytes, to: int, late_s: float) -> None:
        if len(self._on_the_way) >= MAX_ON_THE_WAY:
            self.lost += 1
            return

        def arrive() -> None:
            self._on_the_way.discard(timer)
            self._deliver(packet, to)

        timer = asyncio.get_running_loop().call_later(late_s, arrive)
        self._on_the_way.add(timer)

    def _deliver(self, packet: bytes, to: int) -> None:
        with suppress(OSError):  # the device there is down: it is lost, and shows nowhere else
            os.write(to, packet)
            self.carried += 1
            return
        self.lost += 1


def between(one: Place, others: Iterable[Place]) -> list[Pair]:
    """Both ways between a place and each of the others."""
    return [*out_of(one, others), *into(one, others)]


def out_of(one: Place, others: Iterable[Place]) -> list[Pair]:
    """From a place to the others, and not back."""
    return [(one.packed, other.packed) for other in others]


def into(one: Place, others: Iterable[Place]) -> list[Pair]:
    """From the others to a place, and not back."""
    return [(other.packed, one.packed) for other in others]
