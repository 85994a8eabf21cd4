"""A plain HTTP/1.1 client for attacks: it sends what it is given, and counts what passes.

A library would refuse to send much of it, keep connections for itself, and cost more than it tells.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

HOST: Final = "127.0.0.1"
WITHIN_S: Final = 15.0
MOST_HEAD: Final = 64 * 1024
LIMIT: Final = 1 << 20


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        """The body, if it is a JSON object; else nothing."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def reason(self) -> str:
        """Why it was refused, in a word; empty if it was not."""
        return str(self.fields.get("reason", "")) if self.status >= 400 else ""


class Traffic:
    """What a flooder has done so far."""

    def __init__(self) -> None:
        self.opened = 0
        self.sent = 0
        """Bytes."""
        self.received = 0
        self.statuses: Counter[int] = Counter()

    @property
    def answered(self) -> int:
        """Requests that were answered, whatever with."""
        return self.statuses.total()


class Wire:
    """One connection, opened when it is needed and again when the other side has ended it."""

    def __init__(self, port: int, traffic: Traffic | None = None, *, source: str = HOST) -> None:
        """`source` is the address that it comes from: all of 127/8 are this machine's."""
        self.port = port
        self.traffic = traffic or Traffic()
        self._source = source
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self, *, buffer: int = 0) -> None:
        """Connect; with a `buffer`, to receive no more than so many bytes unread."""
        self.close()
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            if buffer:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            made.bind((self._source, 0))
            async with asyncio.timeout(WITHIN_S):
                await asyncio.get_running_loop().sock_connect(made, (HOST, self.port))
        except BaseException:
            made.close()
            raise
        self._reader, self._writer = await asyncio.open_connection(sock=made, limit=buffer or LIMIT)
        self.traffic.opened += 1

    def close(self) -> None:
        """Hang up; again changes nothing."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def send(self, data: bytes) -> None:
        """Send bytes, connected or not."""
        if self._writer is None:
            await self.open()
        assert self._writer is not None
        self._writer.write(data)
        self.traffic.sent += len(data)
        await self._writer.drain()

    async def ask(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        authorization: str = "",
        headers: tuple[str, ...] = (),
        within_s: float = WITHIN_S,
    ) -> Answer:
        """One request and its answer; an `OSError` or `TimeoutError` if there is none."""
        try:
            async with asyncio.timeout(within_s):
                await self.send(request(method, target, body, authorization, headers))
                return await self.answer(has_body=method != "HEAD")
        except BaseException:
            self.close()
            raise

    async def begin(
        self, target: str, *, authorization: str = "", headers: tuple[str, ...] = ()
    ) -> Answer:
        """The head of an answer whose body comes piece by piece (`piece`)."""
        await self.send(request("GET", target, b"", authorization, headers))
        return await self.head()

    async def piece(self) -> bytes:
        """What has come of a body meanwhile; empty: it is over."""
        assert self._reader is not None
        found = await self._reader.read(65_536)
        self.traffic.received += len(found)
        return found

    async def head(self) -> Answer:
        """The head of the next answer."""
        assert self._reader is not None
        try:
            text = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as ended:
            raise ConnectionError("it was ended before an answer") from ended
        self.traffic.received += len(text)
        first, *lines = text.decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        status = int(first.split()[1])
        self.traffic.statuses[status] += 1
        return Answer(status, headers, b"")

    async def answer(self, *, has_body: bool = True) -> Answer:
        """The next answer, whole."""
        found = await self.head()
        if not has_body or found.status == HTTPStatus.NOT_MODIFIED:
            return found
        return found._replace(body=await self.body(found))

    async def body(self, head: Answer) -> bytes:
        """What follows a head, whole."""
        assert self._reader is not None
        try:
            body = await self._body(self._reader, head.headers)
        except asyncio.IncompleteReadError as ended:
            raise ConnectionError("it was ended within an answer") from ended
        self.traffic.received += len(body)
        if head.headers.get("connection", "").lower() == "close":
            self.close()
        return body

    async def _body(self, reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if "content-length" in headers:
            return await reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") != "chunked":
            return await reader.read()
        parts = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return b"".join(parts)


def request(
    method: str,
    target: str,
    body: bytes = b"",
    authorization: str = "",
    headers: tuple[str, ...] = (),
) -> bytes:
    """A request as bytes."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {HOST}"]
    if authorization:
        lines.append(f"Authorization: {authorization}")
    if body or method in {"PUT", "POST"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def bearer(token: str) -> str:
    """The header of a token."""
    return f"Bearer {token}"


async def is_healthy(port: int, within_s: float) -> float:
    """How long it takes until a probe on a connection of its own is answered, in seconds.

    One that is closed without an answer is made again at once: whoever probes has to wait. Longer
    than `within_s` counts as that.
    """
    begun_s = time.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while not await _is_answered(port):
                await asyncio.sleep(0.005)
    return time.monotonic() - begun_s


async def _is_answered(port: int) -> bool:
    wire = Wire(port)
    try:
        found = await wire.ask("GET", "/healthz", headers=("Connection: close",))
    except OSError:
        return False
    finally:
        wire.close()
    return found.status == 200
