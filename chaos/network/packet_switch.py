"""The switch between network namespaces: carries packets, or loses and delays them as told.

Whatever a namespace sends comes out of its tunnel here, packet by packet. An impairment lies on
directed pairs of namespaces, so a route can be cut one way only. Several may lie on one pair: a
packet must get through all of them. A packet that is late may be overtaken, as on any network.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

from msgspec import Struct

from chaos.network.namespaces import NetworkNamespace

MAX_PACKET_BYTES: Final = 65_535
MAX_AT_ONCE: Final = 64
"""Packets from one namespace before others have their turn."""
MAX_DELAYED: Final = 4_096
"""Late packets that are kept; further ones are lost, as in any full buffer."""
_IPV4_HEADER_BYTES: Final = 20

Pair = tuple[bytes, bytes]
"""From one address to another, packed."""


class Impairment(Struct, frozen=True, kw_only=True):
    """What happens to packets between some namespaces."""

    pairs: frozenset[Pair]
    loss: float = 0.0
    """The share of packets that never arrive."""
    late_s: tuple[float, float] = (0.0, 0.0)
    """Each packet is late by a time between the two."""


class PacketSwitch:
    """Connects namespaces for as long as the context lasts."""

    def __init__(self, namespaces: Sequence[NetworkNamespace], chance: random.Random) -> None:
        self._tunnels = {one.packed: one.tunnel for one in namespaces}
        self._chance = chance
        self._impairments: list[Impairment] = []
        self._delayed: set[asyncio.TimerHandle] = set()
        self.carried = self.lost = 0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for tunnel in self._tunnels.values():
            loop.add_reader(tunnel, self._read, tunnel)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for tunnel in self._tunnels.values():
            loop.remove_reader(tunnel)
        for timer in self._delayed:
            timer.cancel()
        self._delayed.clear()

    @contextmanager
    def impaired(
        self,
        pairs: Iterable[Pair],
        *,
        loss: float = 0.0,
        late_s: tuple[float, float] = (0.0, 0.0),
    ) -> Iterator[None]:
        """Impair these pairs for as long as the context lasts."""
        impairment = Impairment(pairs=frozenset(pairs), loss=loss, late_s=late_s)
        self._impairments.append(impairment)
        try:
            yield
        finally:
            self._impairments = [one for one in self._impairments if one is not impairment]

    def _read(self, tunnel: int) -> None:
        for _ in range(MAX_AT_ONCE):
            try:
                packet = os.read(tunnel, MAX_PACKET_BYTES)
            except OSError:  # nothing more, or the device is down
                return
            self._pass_on(packet)

    def _pass_on(self, packet: bytes) -> None:
        if len(packet) < _IPV4_HEADER_BYTES or packet[0] >> 4 != 4:
            return  # the kernel's own IPv6 discovery
        pair = packet[12:16], packet[16:20]
        to = self._tunnels.get(pair[1])
        if to is None:
            return
        late_s = 0.0
        for impairment in self._impairments:
            if pair in impairment.pairs:
                if self._chance.random() < impairment.loss:
                    self.lost += 1
                    return
                late_s += self._chance.uniform(*impairment.late_s)
        if late_s:
            self._keep(packet, to, late_s)
        else:
            self._deliver(packet, to)

    def _keep(self, packet: bytes, to: int, late_s: float) -> None:
        if len(self._delayed) >= MAX_DELAYED:
            self.lost += 1
            return

        def arrive() -> None:
            self._delayed.discard(timer)
            self._deliver(packet, to)

        timer = asyncio.get_running_loop().call_later(late_s, arrive)
        self._delayed.add(timer)

    def _deliver(self, packet: bytes, to: int) -> None:
        with suppress(OSError):  # the device there is down
            os.write(to, packet)
            self.carried += 1
            return
        self.lost += 1


def between(one: NetworkNamespace, others: Iterable[NetworkNamespace]) -> list[Pair]:
    """Both ways between a namespace and each of the others."""
    return [*out_of(one, others), *into(one, others)]


def out_of(one: NetworkNamespace, others: Iterable[NetworkNamespace]) -> list[Pair]:
    """From a namespace to the others, and not back."""
    return [(one.packed, other.packed) for other in others]


def into(one: NetworkNamespace, others: Iterable[NetworkNamespace]) -> list[Pair]:
    """From the others to a namespace, and not back."""
    return [(other.packed, one.packed) for other in others]
