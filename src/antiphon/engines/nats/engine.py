"""`ports.Engine` on one NATS server or cluster: the parts put together."""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal, Self

from antiphon.core.visible_subjects import Reader
from antiphon.engines.nats.blobs import NatsBlobs
from antiphon.engines.nats.connection.bus import NatsBus
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.connection.server_errors import without_secrets
from antiphon.engines.nats.connection.server_info import ask_durability
from antiphon.engines.nats.log.leases import NatsLeases
from antiphon.engines.nats.log.log import NatsLog
from antiphon.engines.nats.log.pull_queue import LOAN_S
from antiphon.engines.nats.log.streams import (
    Streams,
    check_replicas,
    log_config,
    log_name,
    messages_name,
)
from antiphon.engines.nats.member.scoped_blobs import ScopedBlobs
from antiphon.engines.nats.member.scoped_log import ScopedLog
from antiphon.engines.nats.messages import MemberGateLine, NatsMessages
from antiphon.engines.nats.store.stream_copy import StreamCopy
from antiphon.errors import Malformed, Misconfigured, Unavailable
from antiphon.ports import Blobs, EngineInfo

_log = logging.getLogger(__name__)
_MESH = re.compile(r"[a-z0-9]{1,32}", re.ASCII)
LOOKS_FOR_LOG: Final = 3
LOOK_S: Final = 0.2
"""How often the log is looked for before it counts as missing, and the pause in between."""


class NatsEngine:
    """One node's connection to one mesh on JetStream."""

    def __init__(
        self,
        connection: Connection,
        mesh: str,
        *,
        replicas: int,
        loan_s: float,
        durability: Literal["always", "interval", "unknown"],
        reader: Reader | None = None,
    ) -> None:
        self._connection = connection
        self._fall_silent: Callable[[], None] = lambda: None
        self._requester = Requester(connection)
        self._mesh = mesh
        self._replicas = replicas
        self._durability = durability
        through = (connection, self._requester, mesh)
        self._log = (
            NatsLog(*through, replicas=replicas, loan_s=loan_s)
            if reader is None
            else ScopedLog(*through, reader=reader, replicas=replicas, loan_s=loan_s)
        )
        self._leases = NatsLeases(connection, self._requester, mesh, replicas=replicas)
        self._bus = NatsBus(connection, mesh)
        self.own_blobs = NatsBlobs(connection, self._requester, mesh, replicas=replicas)
        """As a node with all permissions reaches them; of no use to a reader."""
        self._blobs: Blobs = (
            self.own_blobs
            if reader is None
            else ScopedBlobs(connection, self._requester, mesh, reader.user)
        )

        self._messages = NatsMessages(*through, replicas=replicas) if reader is None else None
        self._gate = None if reader is None else MemberGateLine(*through, reader.user)

    @classmethod
    async def connect(  # noqa: PLR0913 - one argument per thing a person can set
        cls,
        url: str,
        mesh: str,
        *,
        login: Login | None = None,
        create: bool = False,
        replicas: int = 1,
        system: Login | None = None,
        name: str = "antiphon",
        inbox_prefix: str = "_INBOX",
        tls: ssl.SSLContext | None = None,
        loan_s: float = LOAN_S,
        timeout_s: float = 5.0,
        reader: Reader | None = None,
        addresses: Callable[[], str] = str,
    ) -> Self:
        """Open the mesh `mesh` at `url` (several, comma-separated, for a cluster).

        Without `login` it uses what the URL says, if anything.
        `create` makes the log's stream if it is missing; without it the stream API is never
        called, and a missing log is `Misconfigured`. `system` lets `info` report the server's
        durability. A member that may read some kinds only is a `reader`: it reads within its
        scope, through the mesh's gate. `addresses` says before each reconnect where the server is.
        """
        if _MESH.fullmatch(mesh) is None:
            raise Malformed(f"{mesh!r} is not a mesh id", reason="mesh")
        check_replicas(replicas)
        connection = await Connection.open(
            url,
            login=login or Login(),
            name=name,
            inbox_prefix=inbox_prefix,
            tls=tls,
            timeout_s=timeout_s,
            addresses=addresses,
        )
        try:
            durability: Literal["always", "interval", "unknown"] = "unknown"
            if system is not None:
                durability = await ask_durability(url, system, tls=tls)
            self = cls(
                connection,
                mesh,
                replicas=replicas,
                loan_s=loan_s,
                durability=durability,
                reader=reader,
            )
            if create:
                await Streams(self._requester).ensure(log_config(mesh, replicas=replicas))
            elif reader is not None or not connection.identity.is_restricted:
                await self._require_log(url)
        except BaseException:
            await connection.close()
            raise
        self._fall_silent = connection.watch_state(_telling(without_secrets(url)))
        return self

    async def _require_log(self, url: str) -> None:
        for _ in range(LOOKS_FOR_LOG - 1):
            with suppress(Unavailable):
                await self._log.require()
                return
            await asyncio.sleep(LOOK_S)  # a server that is busy does not answer in time, either
        try:
            await self._log.require()
        except Unavailable as error:
            if not self._connection.up:
                raise
            raise Misconfigured(
                f"there is no log of the mesh {self._mesh} at {without_secrets(url)}",
                hint=f"check the address, or make the mesh there first ({log_name(self._mesh)})",
            ) from error

    @property
    def log(self) -> NatsLog:
        """See `ports.Engine.log`."""
        return self._log

    @property
    def leases(self) -> NatsLeases:
        """See `ports.Engine.leases`."""
        return self._leases

    @property
    def bus(self) -> NatsBus:
        """See `ports.Engine.bus`."""
        return self._bus

    @property
    def blobs(self) -> Blobs:
        """See `ports.Engine.blobs`."""
        return self._blobs

    @property
    def messages(self) -> NatsMessages | None:
        """See `ports.Engine.messages`."""
        return self._messages

    @property
    def gate(self) -> MemberGateLine | None:
        """See `ports.Engine.gate`."""
        return self._gate

    @property
    def connected(self) -> bool:
        """See `ports.Engine.connected`."""
        return self._connection.up

    @property
    def paused_s(self) -> float:
        """See `ports.Engine.paused_s`."""
        return self._connection.paused_s

    @property
    def reconnects(self) -> int:
        """See `ports.Engine.reconnects`."""
        return self._connection.epoch - 1

    def copy_of(self, what: Literal["log", "messages"]) -> StreamCopy:
        """A stream message by message, for a backup."""
        names = {"log": log_name, "messages": messages_name}
        return StreamCopy(self._requester, names[what](self._mesh))

    async def info(self) -> EngineInfo:
        """See `ports.Engine.info`."""
        self._connection.require_up()
        return EngineInfo(
            name="nats",
            version=self._connection.server_version,
            durability=self._durability,
            replicas=self._replicas,
            warnings=tuple(self._warnings()),
        )

    def _warnings(self) -> list[str]:
        found: list[str] = []
        if self._durability == "interval":
            found.append(
                "The server acknowledges before it syncs to disk: a power cut can lose the last "
                "two minutes, or more. Set `sync_interval: always` in its jetstream block."
            )
        elif self._durability == "unknown":
            found.append(
                "Whether the server syncs before it acknowledges is not known: only its system "
                "account tells."
            )
        if self._replicas == 1 and self._connection.in_cluster:
            found.append(
                "The server is part of a cluster, but this mesh keeps one copy of its log: "
                "losing that server loses the mesh. Use 3 replicas."
            )
        denial = self._connection.last_denial
        if denial is not None:
            found.append(f"The server refused something recently: {denial.message}")
        return found

    async def close(self) -> None:
        """See `ports.Engine.close`."""
        self._fall_silent()
        self._requester.close()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _telling(url: str) -> Callable[[bool], None]:
    """Logs once that the server is unreachable, and once that it is back: nothing else does."""
    was_up = True

    def tell(is_up: bool) -> None:  # noqa: FBT001 - as state watchers are called
        nonlocal was_up
        if is_up != was_up:
            was_up = is_up
            news = "answers again" if is_up else "is unreachable; reconnecting"
            _log.warning("the NATS server at %s %s", url, news)

    return tell
