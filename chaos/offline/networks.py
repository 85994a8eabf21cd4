"""What connects the laptops to the server, and how it is cut.

Where this machine has network namespaces, server and laptops are in namespaces of their own. A cut
is an interface that is down; in one round of some, packets get lost on their way instead, which
nobody is told of. Elsewhere there is a TCP proxy between each laptop and the server.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.rules import Rules
from antiphon.runtime.identity.state_directory import Access, MeshFile, StateDirectory
from bench.meshes.local_cluster import found_mesh, running_servers
from chaos.cluster.namespace_servers import namespaced_servers
from chaos.network.fault_proxy import FaultProxy
from chaos.network.namespaces import NetworkNamespace, enter
from chaos.network.packet_switch import PacketSwitch, between

LAPTOPS: Final = 2
SILENT_EVERY: Final = 8
"""In one round of so many, a laptop is not told that it has no connection."""
RULES: Final = Rules(authority="open")


class Line(Protocol):
    """The connection of one laptop."""

    @property
    def namespace(self) -> Path | None:
        """The network namespace that its processes enter."""

    async def cut(self, number: int) -> None:
        """Interrupt it, in the round with this number."""

    async def join(self) -> None:
        """Repair it."""


class Network(Struct, frozen=True):
    """The mesh, and the laptops' ways to it."""

    name: str
    access: Access
    laptops: list[tuple[Line, MeshFile]]


Networks = Callable[[Path, StateDirectory], AbstractAsyncContextManager[Network]]
"""Starts a server and founds a mesh, with its owner's home in this directory."""


class _ProxyLine:
    namespace: Path | None = None

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    async def cut(self, number: int) -> None:  # noqa: ARG002 - every round alike
        await self._proxy.set_mode("cut")

    async def join(self) -> None:
        await self._proxy.set_mode("normal")


@asynccontextmanager
async def proxies(directory: Path, home: StateDirectory) -> AsyncIterator[Network]:
    """A server on loopback, and a proxy for each laptop."""
    async with AsyncExitStack() as stack:
        servers = await stack.enter_async_context(running_servers(directory, 1))
        described = await found_mesh(home, servers, RULES)
        laptops: list[tuple[Line, MeshFile]] = []
        for _ in range(LAPTOPS):
            proxy = FaultProxy("127.0.0.1", int(servers[0].url.rpartition(":")[2]))
            await stack.enter_async_context(proxy)
            laptops.append((_ProxyLine(proxy), replace(described, engine=proxy.url)))
        yield Network("proxies", home.access(), laptops)


class _NamespaceLine:
    def __init__(
        self, own: NetworkNamespace, others: list[NetworkNamespace], switch: PacketSwitch
    ) -> None:
        self._own, self._others, self._switch = own, others, switch
        self._cut = ExitStack()

    @property
    def namespace(self) -> Path:
        return self._own.path

    async def cut(self, number: int) -> None:
        if number % SILENT_EVERY == SILENT_EVERY - 1:
            lost = self._switch.impaired(between(self._own, self._others), loss=1.0)
            self._cut.enter_context(lost)
        else:
            self._own.set_up(False)
            self._cut.callback(self._own.set_up, True)

    async def join(self) -> None:
        self._cut.close()


class Namespaces:
    """One for this process, one for the server, and one for each laptop."""

    def __init__(self) -> None:
        """Nothing is connected yet. `prepare` comes first."""
        with ExitStack() as stack:
            made = [
                stack.enter_context(NetworkNamespace(number)) for number in range(1, 3 + LAPTOPS)
            ]
            self.close = stack.pop_all().close
        self._all = made

    def enter(self) -> None:
        """Move this process there, for good."""
        enter(self._all[0].path)

    @asynccontextmanager
    async def network(self, directory: Path, home: StateDirectory) -> AsyncIterator[Network]:
        """A server in its namespace, and one switch between all."""
        _, server, *own = self._all
        async with AsyncExitStack() as stack:
            switch = await stack.enter_async_context(PacketSwitch(self._all, random.Random(1)))
            started = namespaced_servers(directory, [server])
            servers, access, ca = await stack.enter_async_context(started)
            described = await found_mesh(home, servers, RULES, access=access, ca=ca)
            laptops: list[tuple[Line, MeshFile]] = []
            for one in own:
                others = [other for other in self._all if other is not one]
                laptops.append((_NamespaceLine(one, others, switch), described))
            yield Network("namespaces", access, laptops)
