"""One connection to a NATS server: reconnects for ever, with clear errors while it is down.

nats-py does the handshake, TLS, authentication and reconnecting. Owned here: when the
connection counts as up, what is sent (many frames in one write), who gets what is received, and
the server's error when it refused something.

Invariants: nothing is sent while the connection is down, so nothing is buffered that could go
out minutes later; a connection is up only after every subscription was replayed; no error of
nats-py leaves this package.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import ssl
from collections.abc import Callable
from typing import Self, TypeVar

from nats import errors as nats_errors

from antiphon.engines.nats.connection import server_errors, wire
from antiphon.engines.nats.connection.client import ReconnectingClient
from antiphon.engines.nats.connection.login import (
    Identity,
    Login,
    check_route,
    has_secret,
    must_encrypt,
)
from antiphon.engines.nats.connection.relogin import Relogin
from antiphon.engines.nats.connection.subscription import Subscription
from antiphon.errors import AntiphonError, EngineDenied, Forked, Unavailable

__all__ = ["Connection", "Identity", "Login", "Subscription"]

MAX_NATS_PY_BUFFER_BYTES = 1024 * 1024
"""nats-py keeps only its own commands in it; publishes never pass through."""
MAX_UNWRITTEN_BYTES = 8 * 1024 * 1024
"""Beyond this, callers that can wait have to wait for the socket."""
_PING_INTERVAL_S = 10
_CLOSE_S = 2.0
"""How long the server may take to close."""
_BREAKS_FORGIVEN = 3
"""A refused login may look like a lost connection: the server's error and nats-py's ping cross."""
_QUOTED = re.compile(r'"([^"]*)"')
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Connection:
    """The connection that everything of one engine shares."""

    def __init__(self) -> None:
        self._client = ReconnectingClient(self)
        self.handlers: dict[bytes, wire.Handler] = self._client.handlers
        self._listeners: dict[int, Subscription] = {}
        self._late: list[Subscription] = []
        self._out: list[bytes] = []
        self._ready = False
        self._closed = False
        self._state_watchers: list[Callable[[bool], None]] = []
        self._denial_watchers: list[Callable[[str, EngineDenied], None]] = []
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self.last_denial: EngineDenied | None = None
        self.last_error = ""
        self.ended: EngineDenied | None = None
        """Why the server refuses our login; we keep trying."""
        self._ending = ""
        self._readmission = Relogin(None, self._readmitted)
        self.login = Login()
        self.identity = Identity()
        self.epoch = 0
        """Counts connections: what was learned in one may be wrong in the next."""

    @classmethod
    async def open(  # noqa: PLR0913 - one argument per thing a person can set
        cls,
        url: str,
        *,
        login: Login,
        name: str = "antiphon",
        inbox_prefix: str = "_INBOX",
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 5.0,
        addresses: Callable[[], str] = str,
    ) -> Self:
        """Connect, or raise why not: every server of `url` (comma-separated) is tried once.

        `addresses` says before each reconnect where else servers are by then. A login with
        permissions has its own inbox prefix, whatever `inbox_prefix` says.
        """
        check_route(url, login, tls)
        self = cls()
        self.login = login
        self.identity = login.identity()
        if self.identity.is_restricted:
            inbox_prefix = f"_I.{self.identity.user}"
        self.inbox = f"{inbox_prefix}.{secrets.token_hex(8)}"
        self._client.must_encrypt = must_encrypt(url, tls)
        self._client.has_secret = has_secret(url, login)
        self._client.addresses = addresses
        try:
            await self._reach(url, login, name, tls, timeout_s)
            server_errors.check_version(self.server_version)
        except BaseException as error:
            await self._drop_client()
            if isinstance(error, (nats_errors.Error, OSError, TimeoutError)):
                raise server_errors.explain(
                    url,
                    error,
                    is_signed=login.is_signed,
                    expires_s=login.expires_s(),
                    has_tls=tls is not None,
                ) from error
            raise
        self._readmission = Relogin(login.renew, self._readmitted)
        self._client.on_error = self._note_error
        self._ready = True
        self.epoch = 1
        return self

    inbox: str

    async def _reach(
        self, url: str, login: Login, name: str, tls: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        """The first connection: nats-py would retry for ever without an error."""
        servers = [part.strip() for part in url.split(",") if part.strip()]
        failures: list[BaseException] = []
        breaks = 0
        exhausted = asyncio.Event()

        def failed(error: BaseException) -> None:
            nonlocal breaks
            if isinstance(error, ConnectionError) and self.server_version:
                breaks += 1  # a server answered
                if breaks <= _BREAKS_FORGIVEN:
                    return
            failures.append(error)
            if len(failures) >= len(servers):
                exhausted.set()

        self._client.on_error = failed
        connecting = asyncio.ensure_future(self._connect(servers, login, name, tls))
        giving_up = asyncio.ensure_future(exhausted.wait())
        try:
            await asyncio.wait(
                (connecting, giving_up), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            giving_up.cancel()
            for _ in range(3):  # nats-py may swallow a cancellation
                connecting.cancel()
                await asyncio.wait((connecting,), timeout=1.0)
        if connecting.cancelled():
            raise failures[-1] if failures else TimeoutError("no answer")
        connecting.result()

    async def _connect(
        self, servers: list[str], login: Login, name: str, tls: ssl.SSLContext | None
    ) -> None:
        await self._client.connect(
            servers=servers,
            name=name,
            user=login.user,
            password=login.password,
            token=login.token,
            user_jwt_cb=self._present_login if login.is_signed else None,
            signature_cb=login.signer(),
            tls=tls,
            error_cb=self._client.note_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_disconnected,
            reconnect_to_server_handler=self._client.choose_server,
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            connect_timeout=3,
            ping_interval=_PING_INTERVAL_S,
            pending_size=MAX_NATS_PY_BUFFER_BYTES,
        )

    def _present_login(self) -> bytes:
        """Asked by nats-py at every connection; only its own errors keep it trying."""
        try:
            return self.login.current_jwt().encode()
        except AntiphonError as error:
            raise nats_errors.Error(f"no login to present: {error.message}") from error

    # --- state ------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """Whether a frame would go out now."""
        return self._ready and self._client.is_connected

    @property
    def closed(self) -> bool:
        """Whether it was closed for good."""
        return self._closed

    @property
    def server_version(self) -> str:
        """What the server calls itself."""
        return str(self._client.server_info.get("version", ""))

    @property
    def in_cluster(self) -> bool:
        """Whether the server is one of several."""
        return bool(self._client.server_info.get("cluster"))

    @property
    def max_payload_bytes(self) -> int:
        """The largest message that the server takes."""
        return self._client.max_payload

    def require_up(self) -> None:
        """Raise `Unavailable` while the connection is down, `EngineDenied` if it stays so."""
        if not self.up:
            self.require_login()
            raise Unavailable(self._why_down())

    @property
    def paused_s(self) -> float:
        """How long to wait for another login, while one is asked for; else 0."""
        return 0.0 if self.up or self._closed else self._readmission.wait_s or 0.0

    def require_login(self) -> None:
        """Raise `EngineDenied` while the server refuses our login."""
        if self.ended is not None and not self._closed:
            raise EngineDenied(self.ended.message, hint=self.ended.hint)

    def _why_down(self) -> str:
        if self._closed:
            return "the connection is closed: nothing was sent"
        why = self._readmission.paused or self.last_error
        because = f" ({why})" if why else ""
        return f"not connected to the NATS server{because}: nothing was sent"

    def watch_state(self, watcher: Callable[[bool], None]) -> Callable[[], None]:
        """Call `watcher` at once when the connection goes down or comes up; returns the undo."""
        self._state_watchers.append(watcher)
        return lambda: _discard(self._state_watchers, watcher)

    def watch_denials(self, watcher: Callable[[str, EngineDenied], None]) -> Callable[[], None]:
        """Call `watcher` with the subject of every refused publish; returns the undo."""
        self._denial_watchers.append(watcher)
        return lambda: _discard(self._denial_watchers, watcher)

    def went_down(self, why: str) -> None:
        """Note the end of the connection before anything can be sent into it."""
        if why:
            self.last_error = why
            self._ending = why if server_errors.is_login_refusal(why) else self._ending
        if not self._ready:
            return
        self._ready = False
        self._out.clear()
        self._tell_state()

    def _tell_state(self) -> None:
        is_up = self._ready
        for watcher in tuple(self._state_watchers):
            watcher(is_up)

    async def _on_disconnected(self) -> None:
        self.went_down("")

    async def _on_reconnected(self) -> None:
        if self._closed:
            return
        self._ready = True
        self.ended = None
        self._ending = ""
        self._readmission.came_up()
        self.epoch += 1
        late, self._late = self._late, []
        for listener in late:
            if listener.sid in self._listeners:
                self.send(listener.frame)
        self._tell_state()

    def _note_error(self, error: BaseException) -> None:
        self.last_error = str(error) or type(error).__name__
        if (
            self._ready
            or self.ended is not None
            or not server_errors.is_login_refusal(self.last_error)
        ):
            return
        ended = server_errors.login_ended(self._ending or self.last_error, self.login.expires_s())
        if not self._readmission.begin(ended):
            self._readmitted(ended)

    def _readmitted(self, ended: EngineDenied | None) -> None:
        """There is another login, or there is none: tell everyone who waits."""
        if not self._ready and not self._closed:
            self.ended = ended
            self._tell_state()

    def note_denied(self, words: str) -> None:
        """The server refused a publish or a subscription: tell everyone who waits for it."""
        quoted = _QUOTED.search(words)
        subject = quoted.group(1) if quoted else ""
        denial = EngineDenied(
            f"the NATS server refused it: {words}",
            hint="ask the mesh's owner for a delegation and NATS permissions that cover it",
        )
        self.last_denial = denial
        if "subscription" in words.lower():
            for listener in tuple(self._listeners.values()):
                if listener.subject == subject and listener.denied is not None:
                    listener.denied(denial)
            return
        for watcher in tuple(self._denial_watchers):
            watcher(subject, denial)

    # --- out --------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Queue a frame for this turn of the loop; the caller has seen `up` in the same turn.

        `Forked` in a forked child: it has the same socket, and its bytes would mix with ours.
        """
        if os.getpid() != self._pid:
            raise Forked
        if not self._out:
            self._loop.call_soon(self.write_out)
        self._out.append(frame)

    def write_out(self) -> None:
        """Hand the queued frames to the socket, in one write."""
        frames, self._out = self._out, []
        if frames and self.up:
            self._client.write(b"".join(frames))

    async def have_room(self) -> None:
        """Wait while the socket is far behind."""
        if self._client.unwritten_bytes > MAX_UNWRITTEN_BYTES:
            await self._client.drained()

    async def round_trip(self, *, timeout_s: float = 5.0) -> None:
        """Return when the server has handled everything sent so far and we its answers."""
        self.require_up()
        self.write_out()
        try:
            async with asyncio.timeout(timeout_s):
                await self._client.ping()
        except (nats_errors.Error, OSError, TimeoutError) as error:
            raise Unavailable(f"the NATS server did not answer a ping: {error}") from error

    # --- in ---------------------------------------------------------------------------------

    def listen(
        self,
        subject: str,
        handler: wire.Handler,
        *,
        denied: Callable[[EngineDenied], None] | None = None,
        queue: str = "",
        limit: int = 0,
    ) -> Subscription:
        """Call `handler` with every message on `subject`, over reconnects, until `unlisten`.

        Listeners of one `queue`, on any connection, share the messages among them. With `limit`
        the server sends no more than this many in one connection (`metered_subscription`).
        """
        sid = self._client.add_subscription(subject, queue, limit)
        listener = Subscription(sid=sid, subject=subject, denied=denied, queue=queue, limit=limit)
        self._listeners[sid] = listener
        self.handlers[b"%d" % sid] = handler
        if self.up:
            self.send(listener.frame)
        else:
            # Its subscriptions may be being replayed right now: unsubscribe again afterwards.
            self._late.append(listener)
        return listener

    def unlisten(self, listener: Subscription, *, linger_s: float = 0.0) -> None:
        """Stop it at the server now, and here after what is on its way had time to arrive."""
        if self._listeners.pop(listener.sid, None) is None:
            return
        self._client.remove_subscription(listener.sid)
        if self.up:
            self.send(b"UNSUB %d\r\n" % listener.sid)
        if linger_s:
            self._loop.call_later(linger_s, self.handlers.pop, b"%d" % listener.sid, None)
        else:
            self.handlers.pop(b"%d" % listener.sid, None)

    # --- end --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close it; safe twice."""
        if self._closed:
            return
        self.write_out()
        self._closed = True
        self._readmission.cancel()
        self.went_down("")
        await self._drop_client()
        self.handlers.clear()
        self._listeners.clear()

    async def _drop_client(self) -> None:
        self._closed = True
        self._ready = False
        # In its own task: nats-py may cancel what it itself waits for.
        closing = asyncio.ensure_future(self._client.end())
        try:
            await asyncio.wait((closing,), timeout=_CLOSE_S)
        finally:
            self._client.hang_up()
        await asyncio.wait((closing,), timeout=_CLOSE_S)
        if closing.done() and not closing.cancelled() and closing.exception() is not None:
            _log.debug("closing a NATS connection: %s", closing.exception())


def _discard(watchers: list[_T], watcher: _T) -> None:
    if watcher in watchers:
        watchers.remove(watcher)
