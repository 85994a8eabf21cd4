"""`ports.Blobs` for a member: every byte goes through the mesh's gate (docs/decisions/0010).

A member has no permission on any stream. It sends chunks to the gate, which stores them and writes
the index once the digest is right; it reads what a job that it names admits. Content is hashed
here too: a gate can withhold bytes, but not change them unnoticed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import NoReturn

import msgspec

from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.blobs import cancel_all, check_digest, even, verified
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.requester import Reply, Requester
from antiphon.engines.nats.member import blob_protocol
from antiphon.engines.nats.member.blob_protocol import BlobRequest, Taken
from antiphon.errors import Corrupt, EngineDenied, Malformed, Rejected, Unavailable

STEP_TIMEOUT_S = 15.0
END_TIMEOUT_S = 60.0
BUSY_TRIES = 8
BUSY_PAUSE_S = 0.25

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Taken).decode


class ScopedBlobs:
    """Blobs within a member's scope."""

    def __init__(self, connection: Connection, requester: Requester, mesh: str, user: str) -> None:
        self._connection = connection
        self._requester = requester
        self._mesh = mesh
        self._user = user

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """See `ports.Blobs.put`."""
        check_digest(digest)
        steps = self._steps(await self._begin(BlobRequest("put", digest)))
        flying: deque[asyncio.Task[bytes]] = deque()
        try:
            number = 0
            async for chunk in even(chunks):
                while len(flying) >= blob_protocol.WINDOW:
                    await flying.popleft()
                flying.append(asyncio.create_task(self._step(f"{steps}.{number}", digest, chunk)))
                number += 1
            while flying:
                await flying.popleft()
            await self._step(f"{steps}.{blob_protocol.END}", digest, timeout_s=END_TIMEOUT_S)
        except BaseException:
            self._leave(steps)
            raise
        finally:
            await cancel_all(flying)

    @asynccontextmanager
    async def get(
        self, digest: str, *, job: tuple[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `ports.Blobs.get`."""
        check_digest(digest)
        taken = await self._begin(_reading("get", digest, job))
        steps = self._steps(taken)
        stream = self._download(steps, taken.chunks, digest)
        try:
            yield stream
        finally:
            await stream.aclose()
            self._leave(steps)

    async def has(self, digest: str, *, job: tuple[str, str] | None = None) -> bool:
        """See `ports.Blobs.has`; of a blob that no such job admits, False."""
        check_digest(digest)
        try:
            await self._begin(_reading("has", digest, job))
        except (EngineDenied, Rejected):
            return False
        return True

    async def remove(self, digest: str) -> None:
        """A member removes nothing: others may name the same bytes."""
        check_digest(digest)
        raise EngineDenied(
            "members store and read artifacts; only the mesh's own nodes remove them",
            hint="antiphon artifacts --evict JOB asks for it on the log",
        )

    # --- inside -----------------------------------------------------------------------------

    async def _download(self, steps: str, count: int, digest: str) -> AsyncGenerator[bytes]:
        parts = (self._step(f"{steps}.{number}", digest) for number in range(count))
        ahead, where = blob_protocol.WINDOW - 1, "the mesh's gate gave"
        async with aclosing(verified(parts, digest, ahead=ahead, where=where)) as stream:
            async for chunk in stream:
                yield chunk

    async def _begin(self, blob_request: BlobRequest) -> Taken:
        subject = blob_protocol.asking(self._mesh, self._user)
        reply = await self._ask(subject, _encode(blob_request), STEP_TIMEOUT_S)
        for attempt in range(1, BUSY_TRIES):
            if wire.status_of(reply.header) != blob_protocol.BUSY:
                break
            await asyncio.sleep(attempt * BUSY_PAUSE_S)
            reply = await self._ask(subject, _encode(blob_request), STEP_TIMEOUT_S)
        self._check(reply, blob_request.digest)
        try:
            return _decode(reply.payload)
        except UNREADABLE as error:
            raise Unavailable(
                "the gate's answer cannot be read; does it run another version?"
            ) from error

    async def _step(
        self, subject: str, digest: str, payload: bytes = b"", *, timeout_s: float = STEP_TIMEOUT_S
    ) -> bytes:
        reply = await self._ask(subject, payload, timeout_s)
        self._check(reply, digest)
        return reply.payload

    async def _ask(self, subject: str, payload: bytes, timeout_s: float) -> Reply:
        try:
            reply = await self._requester.request(
                wire.check_subject(subject), payload, timeout_s=timeout_s
            )
        except EngineDenied:
            raise
        except Unavailable as error:
            self._connection.require_up()
            raise _no_gate(error.message) from error
        if wire.status_text(reply.header) == "503":  # the server's own has no words
            raise _no_gate("no responders")
        return reply

    def _check(self, reply: Reply, digest: str) -> None:
        code = wire.status_of(reply.header)
        if code:
            _refuse(code, wire.status_text(reply.header)[4:], digest)

    def _leave(self, steps: str) -> None:
        """Without waiting: an abandoned transfer ends by itself in a while."""
        with suppress(Unavailable):
            if self._connection.up:
                subject = wire.check_subject(f"{steps}.{blob_protocol.LEAVE}")
                self._connection.send(wire.pub(subject, b""))

    def _steps(self, taken: Taken) -> str:
        return blob_protocol.steps(self._mesh, self._user, taken)


def _no_gate(why: str) -> Unavailable:
    return Unavailable(
        f"the mesh's gate does not answer ({why})",
        hint="is 'antiphon up' running on the mesh's machine?",
    )


def _reading(do: str, digest: str, job: tuple[str, str] | None) -> BlobRequest:
    kind, name = job or ("", "")
    try:
        return msgspec.convert(
            {"do": do, "digest": digest, "kind": kind, "job": name}, type=BlobRequest
        )
    except msgspec.ValidationError as error:
        raise Malformed(f"{name!r} is not a job", reason="job") from error


def _refuse(code: int, words: str, digest: str) -> NoReturn:
    if code == blob_protocol.ABSENT:
        raise Rejected(f"{digest} is not stored", reason="no_blob")
    if code == blob_protocol.DENIED:
        raise EngineDenied(
            f"the mesh's gate refused it: {words}",
            hint="name a job that you may read and that reads or wrote it",
        )
    if code == blob_protocol.TOO_LARGE:
        raise Rejected(f"the mesh's gate accepts no more: {words}", reason="too_large")
    if code == blob_protocol.CORRUPT:
        raise Corrupt(f"the bytes do not hash to {digest}")
    raise Unavailable(f"the mesh's gate failed: {words}")
