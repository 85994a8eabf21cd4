"""An attacker's connection to the server: plain nats-py, raw frames, and every byte received.

nats-py's publishing checks subjects and writes headers its own way; an attacker does neither. So
frames are written here by hand, and what arrives is kept before nats-py parses it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from typing import Any, Final, Self

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from antiphon.engines.nats import UserKey, client_context
from antiphon.engines.nats.log.streams import log_name
from antiphon.runtime.identity.state_directory import StateDirectory

ANSWER_S: Final = 40.0
"""How long to wait for what must come: a slow machine is no breach."""
QUIET_S: Final = 0.1
"""How long to listen for something that should not come."""


class Credentials(Struct, frozen=True):
    """A user's login."""

    jwt: str
    seed: str

    def __repr__(self) -> str:
        return "Credentials(…)"


def header(**fields: object) -> bytes:
    """A header block; `_` in a name stands for `-`."""
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()]
    return ("NATS/1.0\r\n" + "".join(lines) + "\r\n").encode()


class RawConnection:
    """One connection, with everything that came in over it."""

    def __init__(self, home: StateDirectory, credentials: Credentials) -> None:
        described = home.mesh()
        self.mesh = described.mesh
        self.stream = log_name(described.mesh)
        self.user = UserKey.from_seed(credentials.seed).public
        self.received = bytearray()
        """Everything that the server sent on this connection."""
        self.errors: list[str] = []
        self.ended = asyncio.Event()
        self.inbox = f"_I.{self.user}.out"
        self._engine, self._ca, self._credentials = described.engine, described.ca, credentials
        self._client = Client()
        self._answers: dict[str, list[Msg]] = {}
        self._newest_pull = ""
        self._asked = 0

    @classmethod
    async def open(
        cls,
        home: StateDirectory,
        credentials: Credentials | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Log in, with the home's own login unless another is given."""
        access = home.access()
        connection = cls(home, credentials or Credentials(access.jwt, access.user_seed))
        await connection._connect(tls)
        return connection

    async def _connect(self, tls: ssl.SSLContext | None) -> None:
        key = UserKey.from_seed(self._credentials.seed)

        async def on_error(error: Exception) -> None:
            self.errors.append(str(error))

        async def on_end() -> None:
            self.ended.set()

        client = self._client
        self._keep_received(client)
        async with asyncio.timeout(ANSWER_S):
            await client.connect(
                self._engine,
                name="outsider",
                user_jwt_cb=lambda: bytearray(self._credentials.jwt.encode()),
                signature_cb=lambda nonce: base64.b64encode(key.sign(nonce.encode())),
                tls=tls or client_context(self._ca),
                inbox_prefix=f"_I.{self.user}".encode(),
                allow_reconnect=False,
                connect_timeout=3,
                error_cb=on_error,
                closed_cb=on_end,
                disconnected_cb=on_end,
            )

    def _keep_received(self, client: Client) -> None:
        parser = client._ps  # noqa: SLF001 - nats-py shows its bytes nowhere else
        parse_next = parser.parse

        async def parse(data: bytes = b"") -> None:
            self.received += data
            await parse_next(data)

        parser.parse = parse  # type: ignore[method-assign]

    # --- sending ----------------------------------------------------------------------------

    async def send(self, *frames: bytes) -> None:
        """Send frames as they are."""
        for frame in frames:
            await self._client._send_command(frame)  # noqa: SLF001 - nats-py would check them
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._client._flush_pending(force_flush=True)  # noqa: SLF001
        except TimeoutError:
            if self.is_open:
                raise
            # nats-py forgets whoever waits when the connection ends in that moment.

    async def write(self, frames: bytes) -> None:
        """Send bytes without nats-py in between, as fast as the socket takes them."""
        transport = self._client._transport  # noqa: SLF001
        if transport is not None:
            transport.write(frames)
            await transport.drain()  # type: ignore[no-untyped-call]

    async def publish(
        self, subject: str | bytes, payload: bytes = b"", *, reply: str = "", head: bytes = b""
    ) -> None:
        """Publish, with any reply subject and any header block."""
        await self.send(frame(subject, payload, reply=reply, head=head))

    async def flush(self) -> None:
        """Return when the server has handled, and answered, everything sent so far."""
        await self.send()  # nats-py's ping would overtake what waits to be written
        await self._client.flush(round(ANSWER_S))

    @property
    def is_open(self) -> bool:
        """Whether it is still connected."""
        return self._client.is_connected and not self.ended.is_set()

    async def is_refused(self, subject: str, payload: bytes = b"", **more: Any) -> bool:
        """Publish; whether the server refused exactly this message."""
        before = len(self.received)
        await self.publish(subject, payload, **more)
        await self.flush()
        return self._was_refused("Publish", subject, before)

    def _was_refused(self, what: str, subject: str, since: int) -> bool:
        error = f'Permissions Violation for {what} to "{subject}"'
        return error.encode() in self.received[since:]

    # --- answers ----------------------------------------------------------------------------

    async def listen(self, pattern: str, queue: str = "") -> list[Msg] | None:
        """Subscribe: a list that grows, or None if the server refused it."""
        heard: list[Msg] = []

        async def note(message: Msg) -> None:
            heard.append(message)

        before = len(self.received)
        await self._client.subscribe(pattern, queue=queue, cb=note)
        await self.flush()
        return None if self._was_refused("Subscription", pattern, before) else heard

    async def ask(
        self,
        subject: str | bytes,
        payload: bytes = b"",
        *,
        head: bytes = b"",
        within_s: float = ANSWER_S,
        answers: int = 1,
    ) -> list[Msg]:
        """Publish with a reply subject in its own inbox; the answers that came in time."""
        if not self._asked:
            await self._client.subscribe(f"{self.inbox}.*", cb=self._on_answer)
        self._asked += 1
        reply = f"{self.inbox}.{self._asked}"
        found = self._answers[reply] = []
        if b"CONSUMER.MSG.NEXT" in (subject if isinstance(subject, bytes) else subject.encode()):
            self._newest_pull = reply
        await self.publish(subject, payload, reply=reply, head=head)
        deadline = time.monotonic() + within_s
        while len(found) < answers and time.monotonic() < deadline and self.is_open:
            await asyncio.sleep(0.002)
        return found

    async def _on_answer(self, message: Msg) -> None:
        """A delivery has its record's subject instead: it belongs to the newest pull."""
        to = message.subject if message.subject in self._answers else self._newest_pull
        self._answers.setdefault(to, []).append(message)

    async def store(
        self, subject: str | bytes, payload: bytes = b"junk", *, head: bytes = b""
    ) -> dict[str, Any]:
        """Publish into the log; the acknowledgement, empty if none came."""
        found = await self.ask(subject, payload, head=head)
        answer: dict[str, Any] = json.loads(found[0].data or b"{}") if found else {}
        return answer

    async def close(self) -> None:
        """Disconnect."""
        if not self._client.is_closed:
            await self._client.close()


def frame(
    subject: str | bytes, payload: bytes = b"", *, reply: str = "", head: bytes = b""
) -> bytes:
    """A PUB or HPUB frame."""
    where = subject if isinstance(subject, bytes) else subject.encode()
    back = reply.encode() + b" " if reply else b""
    if not head:
        return b"PUB %b %b%d\r\n%b\r\n" % (where, back, len(payload), payload)
    total = len(head) + len(payload)
    return b"HPUB %b %b%d %d\r\n%b%b\r\n" % (where, back, len(head), total, head, payload)
