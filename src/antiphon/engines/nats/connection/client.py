"""nats-py's client with our parser in it, and reconnecting where it would give up.

The one place that reaches into nats-py's private parts (its parser, transport, subscriptions
and error hooks); `tests/engines/nats` fails first if a new nats-py moves them.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import urlparse

from nats import errors as nats_errors
from nats.aio.client import Client, Server, Srv
from nats.aio.subscription import Subscription

from antiphon.engines.nats.connection import server_errors, wire
from antiphon.errors import AntiphonError, Unavailable

_BACKOFF_FIRST_S = 0.05
_BACKOFF_MAX_S = 1.0
"""Leases run out while nothing is connected: a server that is back is found within about this."""


class Owner(Protocol):
    """Is told at once what happens to the connection."""

    def note_denied(self, words: str) -> None:
        """The server refused a publish or a subscription."""

    def went_down(self, why: str) -> None:
        """The connection is gone."""


class ReconnectingClient(Client):
    """nats-py's client with our parser in it, and reconnecting where it would give up."""

    def __init__(self, owner: Owner) -> None:
        super().__init__()
        self._owner = owner
        self.handlers: dict[bytes, wire.Handler] = {}
        self._ps = wire.Parser(self, self.handlers)  # type: ignore[assignment]
        self.on_error: Callable[[BaseException], None] = lambda _: None
        self.must_encrypt = False
        self.has_secret = False
        self.addresses: Callable[[], str] = str
        """Where the servers are now, comma-separated: asked before each try to reconnect."""
        self._is_ended = False

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's INFO."""
        return self._server_info

    @property
    def unwritten_bytes(self) -> int:
        """What the socket has not taken yet."""
        writer = self._writer
        return 0 if writer is None else int(writer.transport.get_write_buffer_size())

    @property
    def _writer(self) -> Any:
        """The socket's, unless it is closing: a closed TLS transport cannot be asked."""
        writer = getattr(self._transport, "_io_writer", None)
        return None if writer is None or writer.transport.is_closing() else writer

    def write(self, frames: bytes) -> None:
        """Straight to the socket: ordering against nats-py's own few commands never matters."""
        if self._transport is not None and self._writer is not None:
            self._transport.write(frames)

    async def drained(self) -> None:
        """Wait until the socket took most of it."""
        if self._transport is not None:
            try:
                await self._transport.drain()  # type: ignore[no-untyped-call]
            except OSError as error:
                raise Unavailable(f"the connection broke: {error}") from error

    async def ping(self) -> None:
        """Return when the server has answered: nats-py's own way may swallow a cancellation.

        (It waits with `wait_for`, which up to Python 3.11 returns as if nothing had happened when
        the answer and the cancellation come in the same turn.)
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._send_ping(answered)
        await asyncio.shield(answered)  # it stays in nats-py's list, which settles it later

    def add_subscription(self, subject: str, queue: str = "", limit: int = 0) -> int:
        """Have nats-py replay this subscription, and its limit, after a reconnect."""
        self._sid += 1
        self._subs[self._sid] = Subscription(self, self._sid, subject, queue, max_msgs=limit)
        return self._sid

    def remove_subscription(self, sid: int) -> None:
        """Stop replaying it."""
        self._subs.pop(sid, None)

    async def note_error(self, error: Exception) -> None:
        """nats-py's error callback."""
        self.on_error(error)

    async def take_info(self, line: bytes) -> None:
        """The server sent new information about itself or its cluster."""
        await self._process_info(json.loads(line))

    def choose_server(self, servers: list[Server], info: dict[str, Any]) -> tuple[Server, float]:
        """The server to try next. One that moved is in the list from the next try on."""
        known = {one.uri.netloc for one in servers}
        with suppress(AntiphonError, ValueError):
            for address in filter(None, self.addresses().split(",")):
                uri = urlparse(address.strip())
                if uri.netloc not in known:
                    self._server_pool.append(Srv(uri))
                    known.add(uri.netloc)
        return next_server(servers, info)

    def hang_up(self) -> None:
        """Drop the socket, and whatever could not be written to it.

        nats-py forgets the connection of a refused login, and the one below TLS; and it would
        wait half a minute for a peer that has gone to agree to the end of an encrypted one.
        """
        for name in ("_io_writer", "_bare_io_writer"):
            writer = getattr(self._transport, name, None)
            if writer is not None:
                with suppress(AttributeError):  # Python 3.11.2 (Debian 12), if it was closed twice
                    writer.transport.abort()

    async def end(self) -> None:
        """Close it for good: nothing of it connects from now on."""
        self._is_ended = True
        await self.close()

    async def _connect_to_server(self, s: Any) -> None:
        self.hang_up()
        self._stop_if_ended()
        await super()._connect_to_server(s)
        self._stop_if_ended()

    def _stop_if_ended(self) -> None:
        """End nats-py's loop of tries: it may swallow the cancellation that should (`ping`)."""
        if self._is_ended:
            self.hang_up()
            raise asyncio.CancelledError

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - nats-py's signature
        # nats-py would continue unencrypted if the server's first answer says so.
        if initial_connection and self.must_encrypt and not info.get("tls_required"):
            raise nats_errors.Error(server_errors.NO_TLS)
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """The first thing that is sent, with the login in it."""
        server = self._current_server
        is_local = server is not None and server_errors.is_loopback(server.uri.hostname)
        is_encrypted = self._note_encryption()
        if self.must_encrypt and not is_encrypted:
            raise nats_errors.Error(server_errors.NO_TLS)
        # A server of the cluster that we learned about later may be on another machine.
        if self.has_secret and not is_encrypted and not is_local:
            raise nats_errors.Error(server_errors.IN_THE_CLEAR)
        return super()._connect_command()

    def _note_encryption(self) -> bool:
        """Whether TLS is on; tells asyncio so.

        nats-py exchanges the stream below asyncio's protocol, which then takes every hang-up for
        one that could be half closed, and complains.
        """
        if self._current_server is not None and self._current_server.uri.scheme == "wss":
            return True
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None or writer.get_extra_info("ssl_object") is None:
            return False
        writer.transport.get_protocol()._over_ssl = True  # noqa: SLF001
        return True

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg.lower():
            self._owner.note_denied(err_msg)
            return
        # nats-py would close for good, e.g. when a credential expired or was renewed.
        await self._process_op_err(nats_errors.Error(err_msg))

    async def _process_op_err(self, e: Exception) -> None:
        self._owner.went_down(str(e))
        if not self.is_closed and not self.is_reconnecting:
            self.hang_up()
        await super()._process_op_err(e)


def next_server(servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
    """The least tried server, after a random part of a doubling and bounded time."""
    server = min(servers, key=lambda one: one.reconnects)
    bound_s = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** min(server.reconnects, 16))
    return server, bound_s * (0.5 + secrets.randbelow(1000) / 2000)
