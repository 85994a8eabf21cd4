"""One program's connection to a mesh over a node's HTTP interface.

The log is whole: reads, follows and writes, within the delegations of the program's key. There are
no work queues, no keys that expire and no stored artifacts. Nothing is heard on the bus, which
promises nothing: beats, presence and live output are not seen from here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn, Self

from antiphon.core.bus.subjects import INBOX
from antiphon.engines.http.log import HttpLog
from antiphon.engines.http.log_protocol import End
from antiphon.engines.http.node_url import check_url, trusted
from antiphon.engines.http.signed_client import SignedClient
from antiphon.errors import NotPermitted, Unavailable
from antiphon.ports import Engine, EngineInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from httpx2 import AsyncBaseTransport

    from antiphon.ports import BusMessage, Entropy, Keyring, LeaseEntry, WallClock

_JOIN: Final = "use it on a machine of the mesh: antiphon join TICKET"


class HttpEngine:
    """`ports.Engine` for a member that asks a node."""

    def __init__(self, client: SignedClient, mesh: str) -> None:
        """Made by `connect`."""
        self._client = client
        self.mesh = mesh
        self.log = HttpLog(client, mesh)
        self.leases = NoLeases()
        self.bus = SilentBus(client)
        self.blobs = NoBlobs()
        self.messages = None
        self.gate = None

    @classmethod
    async def connect(  # noqa: PLR0913 - what a connection is made of
        cls,
        url: str,
        mesh: str,
        keyring: Keyring,
        *,
        wall: WallClock,
        entropy: Entropy,
        ca: Path | None = None,
        transport: AsyncBaseTransport | None = None,
    ) -> Self:
        """Connect, and make sure that the node answers this key; `NotPermitted` if it does not."""
        address = check_url(url)
        trust = trusted(ca) if address.startswith("https:") else None
        client = SignedClient(
            address,
            mesh,
            keyring,
            wall=wall,
            entropy=entropy,
            trust=trust,
            transport=transport,
        )
        engine = cls(client, mesh)
        try:
            await engine.log.ask(End())
        except BaseException:
            await client.close()
            raise
        return engine

    @property
    def connected(self) -> bool:
        """Whether the last request was answered."""
        return self._client.is_up and not self._client.is_closed

    @property
    def paused_s(self) -> float:
        """A node answers later instead."""
        return 0.0

    @property
    def reconnects(self) -> int:
        """How often the node answered again."""
        return self._client.reconnects

    async def info(self) -> EngineInfo:
        """What is behind the node, this program cannot ask."""
        await self.log.ask(End())
        return EngineInfo(name="http", version="1", durability="unknown", replicas=1)

    async def close(self) -> None:
        """Close the connection; safe twice."""
        await self._client.close()


class NoLeases:
    """`ports.Leases`, which only nodes of the mesh have."""

    async def create(self, key: str, value: bytes, *, ttl_ms: int) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Leases.create`."""
        raise _not_here("keys that expire")

    async def renew(self, entry: LeaseEntry, value: bytes, *, ttl_ms: int) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Leases.renew`."""
        raise _not_here("keys that expire")

    async def release(self, entry: LeaseEntry) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Leases.release`."""
        raise _not_here("keys that expire")

    async def get(self, key: str) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Leases.get`."""
        raise _not_here("keys that expire")


class NoBlobs:
    """`ports.Blobs`: what is too large for a record cannot be stored or read over HTTP."""

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Blobs.put`."""
        raise _not_here("stored artifacts")

    def get(self, digest: str, *, job: tuple[str, str] | None = None) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Blobs.get`."""
        raise _not_here("stored artifacts")

    async def has(self, digest: str, *, job: tuple[str, str] | None = None) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Blobs.has`."""
        raise _not_here("stored artifacts")

    async def remove(self, digest: str) -> NoReturn:  # noqa: ARG002 - of the port
        """See `ports.Blobs.remove`."""
        raise _not_here("stored artifacts")


class SilentBus:
    """`ports.Bus` where every message is lost, as any may be."""

    def __init__(self, client: SignedClient) -> None:
        self._client = client

    async def publish(self, subject: str, payload: bytes, *, reply: str = "") -> None:  # noqa: ARG002 - of the port
        """See `ports.Bus.publish`."""
        if self._client.is_closed:
            raise Unavailable("the connection is closed")

    def subscribe(
        self,
        subject: str,  # noqa: ARG002 - of the port
        *,
        max_pending: int = 4096,  # noqa: ARG002 - of the port
    ) -> AbstractAsyncContextManager[AsyncIterator[BusMessage]]:
        """See `ports.Bus.subscribe`."""
        return Silence()

    def new_inbox(self) -> str:
        """See `ports.Bus.new_inbox`."""
        return INBOX.at(user=self.user, place=0)

    @property
    def user(self) -> str:
        """See `ports.Bus.user`."""
        return self._client.key.rpartition(":")[2]


class Silence:
    """Messages that never come."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BusMessage:
        await asyncio.get_running_loop().create_future()
        raise StopAsyncIteration


def _not_here(what: str) -> NotPermitted:
    return NotPermitted(f"there are no {what} over HTTP", hint=_JOIN)


if TYPE_CHECKING:

    def _as_engine(engine: HttpEngine) -> Engine:
        return engine  # the type checker proves here that the whole port is implemented
