"""The task `http.post`: a worker sends a request to a host on its list, so that a plan can notify.

    mesh = Mesh.open()
    offer_posts(mesh, ["hooks.example"])

One connection, no redirects, no proxy, ten seconds, and a bounded answer. An answer of 2xx is the
result. 408, 429 and 5xx are tried again, as the job's attempts say; all others end the job.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec

from antiphon.errors import GiveUp, Rejected, RetryLater
from antiphon.runtime.executors.handler_call import JobContext
from antiphon.sdk.webhooks.allowed_hosts import AllowedHosts, Target
from antiphon.sdk.webhooks.signature import OWN, signed_header

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from antiphon.sdk.mesh import Mesh

KIND: Final = "http.post"
REQUEST_S: Final = 10.0
BODY_BYTES: Final = 256 * 1024
ANSWER_BYTES: Final = 16 * 1024
"""Of an answer, so much is the job's result; the rest is not read."""
HEAD_BYTES: Final = 16 * 1024
MOST_HEADS: Final = 8
"""Of one answer: 100 Continue, 103 Early Hints."""
HEADERS: Final = 16
HEADER_CHARACTERS: Final = 1_000
ATTEMPTS: Final = 5
AGAIN_S: Final = 10.0
SECRET_BYTES: Final = 256
_OURS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "idempotency-key",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        OWN,
    }
)
_AGAIN: Final = frozenset({408, 425, 429})
_GOOD: Final = range(200, 300)
_FAULT: Final = 500
_STATUS: Final = re.compile(r"HTTP/1\.[01] ([1-5][0-9]{2})(?: |$)", re.ASCII)


class Posted(TypedDict):
    """What was answered."""

    status: int
    body: str


def offer_posts(mesh: Mesh, hosts: Iterable[str], *, secrets: Path | None = None) -> None:
    """Register the task `http.post` on a mesh, for requests to these hosts.

    The file `http.post.HOST` in `secrets` has the secret with which requests to a host are signed.
    """
    allowed = AllowedHosts(hosts)

    @mesh.task(KIND, attempts=ATTEMPTS, timeout="1m")
    async def http_post(
        ctx: JobContext, url: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Posted:
        """Send a body as JSON."""
        try:
            target = allowed.target(url)
            sent = _headers(headers or {})
            addresses = await _addresses(target, allowed)
        except Rejected as refused:
            raise GiveUp(f"{refused.message} ({refused.reason})") from None
        text = msgspec.json.encode(body)
        if len(text) > BODY_BYTES:
            raise GiveUp(f"a body has at most {BODY_BYTES:,} bytes")
        sent["Idempotency-Key"] = ctx.job_id
        if (secret := await asyncio.to_thread(_secret, secrets, target.host)) is not None:
            sent[OWN] = signed_header(secret, text, int(time.time()), ctx.job_id)
        try:
            async with asyncio.timeout(REQUEST_S):
                status, answer = await _exchange(target, addresses[0], sent, text)
        except (OSError, TimeoutError, EOFError) as problem:
            raise RetryLater(
                AGAIN_S, f"{target.host}: {str(problem) or 'no answer in time'}"
            ) from None
        if status in _AGAIN or status >= _FAULT:
            raise RetryLater(AGAIN_S, f"{target.host} answered {status}")
        if status not in _GOOD:
            raise GiveUp(f"{target.host} answered {status}")
        return {"status": status, "body": answer.decode("utf-8", "replace")}


def _headers(given: dict[str, str]) -> dict[str, str]:
    """Headers that a job may set; `Rejected` if one is not among them."""
    if len(given) > HEADERS:
        raise Rejected(f"a request has at most {HEADERS} headers", reason="headers")
    for name, value in given.items():
        is_name = name.isascii() and name.replace("-", "").isalnum()
        is_value = len(value) <= HEADER_CHARACTERS and value.isascii() and value.isprintable()
        if not is_name or not is_value or name.lower() in _OURS:
            raise Rejected(f"the header {name[:80]!r} cannot be set", reason="headers")
    return {"Content-Type": "application/json", "User-Agent": "antiphon", **given}


async def _addresses(target: Target, allowed: AllowedHosts) -> list[str]:
    """The addresses of a host, each of them allowed."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(REQUEST_S):
            found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except UnicodeError:  # what IDNA does not permit
        raise Rejected(f"{target.host[:80]!r} is no name of a host", reason="host") from None
    except (OSError, TimeoutError) as problem:
        raise RetryLater(AGAIN_S, f"{target.host} has no address: {problem}") from None
    addresses = [str(one[4][0]) for one in found]
    for address in addresses:
        allowed.check_address(address)
    return addresses


def _secret(folder: Path | None, host: str) -> bytes | None:
    if folder is None:
        return None
    try:
        with (folder / f"{KIND}.{host}").open("rb") as file:
            return file.read(SECRET_BYTES).strip() or None
    except OSError:
        return None


async def _exchange(
    target: Target, address: str, headers: dict[str, str], body: bytes
) -> tuple[int, bytes]:
    """Send one request on a connection of its own; the status and the beginning of the answer."""
    context = make_tls() if target.scheme == "https" else None
    name = target.host if context is not None else None
    reader, writer = await asyncio.open_connection(
        address, target.port, ssl=context, server_hostname=name, limit=HEAD_BYTES
    )
    try:
        lines = {"Host": target.host_header, **headers, "Content-Length": str(len(body))}
        head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        asked = f"POST {target.path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n"
        writer.write(asked.encode("ascii") + body)
        await writer.drain()
        return await _answer(reader)
    except (asyncio.LimitOverrunError, ValueError) as problem:
        raise EOFError(f"its answer is not HTTP: {problem}") from None
    finally:
        writer.transport.abort()  # closing would wait until the receiver took the whole body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status of an answer, and the beginning of its body; `ValueError` if it is not HTTP."""
    status = 0
    fields: dict[str, str] = {}
    for _ in range(MOST_HEADS):
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        found = _STATUS.match(first)
        if found is None:
            raise ValueError("it has no status")
        status = int(found[1])
        fields = {key.lower(): value.strip() for key, _, value in (x.partition(":") for x in rest)}
        if status >= _GOOD.start:  # those below announce another one
            break
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return status, await _chunks(reader)
    length = fields.get("content-length", "")
    most = min(int(length), ANSWER_BYTES) if length.isascii() and length.isdigit() else ANSWER_BYTES
    return status, await _upto(reader, most)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while len(found) < ANSWER_BYTES:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0].strip() or b"x", 16)
        if size <= 0:
            break
        piece = await _upto(reader, min(size, ANSWER_BYTES - len(found)))
        found += piece
        if len(piece) < size:
            break
        await reader.readexactly(2)
    return found


async def _upto(reader: asyncio.StreamReader, most: int) -> bytes:
    parts, left = list[bytes](), most
    while left and (piece := await reader.read(left)):
        parts.append(piece)
        left -= len(piece)
    return b"".join(parts)


def make_tls() -> ssl.SSLContext:
    """What says which certificates are good."""
    return ssl.create_default_context()
