"""Blobs by digest, in chunks on their own stream.

A blob is its chunks, on a subject that only this upload uses, and one index record on the
digest's subject, written last: what has no index does not exist. The index lists the chunks'
sequences, so reading is a pipeline of gets by sequence and never a search. Content is hashed on
the way in and on the way out.

An aborted upload and a removed blob are deleted by a roll-up marker that itself expires after a
second; that needs no permission but to publish.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from blake3 import blake3
from msgspec import Struct, structs

from antiphon.decoding import UNREADABLE
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.requester import Requester
from antiphon.engines.nats.log.direct_get import DirectGet
from antiphon.engines.nats.log.streams import (
    MAX_RECORD_BYTES,
    ApiError,
    Streams,
    blobs_config,
    blobs_name,
)
from antiphon.errors import Corrupt, Malformed, Rejected, Unavailable
from antiphon.ports import StoredBlob

CHUNK_BYTES = 128 * 1024
MAX_CHUNKS_IN_FLIGHT = 16
MAX_INDEX_BYTES = MAX_RECORD_BYTES - 1024
"""Enough for 3 GiB whose chunks are all interleaved with other uploads' chunks."""
WRITE_TIMEOUT_S = 10.0
INDEXES_AT_ONCE = 256
BLOB_WEIGHT = 64 * 1024
"""What a blob counts besides its bytes: an index and a subject cost something too."""
_DIGEST = re.compile(r"blake3:([0-9a-f]{64})", re.ASCII)
_ERASE = b"NATS/1.0\r\nNats-Rollup: sub\r\nNats-TTL: 1s\r\nAntiphon-Freed: 1\r\n\r\n"
_PLAIN = b"NATS/1.0\r\n\r\n"
_FREED = b"\r\nAntiphon-Freed: 1\r\n"


class _PubAck(Struct, frozen=True, gc=False):
    seq: int = 0
    error: ApiError | None = None


class Index(Struct, frozen=True, omit_defaults=True):
    """Where a blob's chunks are: runs of consecutive sequences."""

    part: str
    size: int
    runs: list[tuple[int, int]]
    by: str = ""
    """The member that stored it, by its engine user; empty for the mesh's own nodes."""

    def sequences(self) -> list[int]:
        """Where each chunk is, in their order."""
        return [seq for first, count in self.runs for seq in range(first, first + count)]


_decode_ack = msgspec.json.Decoder(_PubAck).decode
_decode_index = msgspec.json.Decoder(Index).decode


class NatsBlobs:
    """`ports.Blobs` on JetStream."""

    def __init__(
        self, connection: Connection, requester: Requester, mesh: str, *, replicas: int
    ) -> None:
        self._connection = connection
        self._requester = requester
        self._mesh = mesh
        self._replicas = replicas
        self._records = DirectGet(requester, blobs_name(mesh))
        self._streams = Streams(requester)
        self._root = f"apo.{mesh}"
        self._is_open = False
        self._opening = asyncio.Lock()

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """See `ports.Blobs.put`."""
        await self.store(chunks, digest=digest)

    async def store(self, chunks: AsyncIterator[bytes], *, digest: str, by: str = "") -> bool:
        """The same on behalf of a member; whether these bytes are the copy that stays."""
        name = check_digest(digest)
        await self._open()
        if await self._find(name) is not None:
            await _check_only(chunks, digest)
            return False
        part = f"{self._root}.part.{name}.{secrets.token_hex(8)}"
        try:
            index = await self._upload(chunks, part, digest)
            encoded = _encode_index(structs.replace(index, by=by))
            # Another node may have stored the same bytes meanwhile: then ours are deleted.
            if await self._find(name) is None:
                await self._publish(f"{self._root}.blob.{name}", encoded)
                return True
        except BaseException:
            self._erase_soon(part)
            raise
        await self._erase(part)
        return False

    async def find(self, digest: str) -> Index | None:
        """Where a blob's chunks are, or None if it is not stored whole."""
        name = check_digest(digest)
        await self._open()
        return await self._find(name)

    async def chunk(self, index: Index, seq: int, digest: str) -> bytes:
        """One chunk of a blob; not checked against anything but its place."""
        return await self._chunk(seq, index.part, digest)

    async def weights(self) -> dict[str, int]:
        """By member: what it stored, in bytes, with a fixed part for each blob."""
        found: dict[str, int] = {}
        async with aclosing(self.everything()) as blobs:
            async for blob in blobs:
                found[blob.by] = found.get(blob.by, 0) + blob.size + BLOB_WEIGHT
        return found

    async def everything(self) -> AsyncGenerator[StoredBlob]:
        """Every blob that is stored whole, in the order in which they were."""
        await self._open()
        first, more, stem = 1, True, f"{self._root}.blob."
        while more:
            page = await self._records.batch_with_headers(
                first, limit=INDEXES_AT_ONCE, subject=f"{stem}*"
            )
            for record, header in zip(page.records, page.headers, strict=True):
                first = record.seq + 1
                if _FREED not in header:
                    index = _decode_index(record.payload)
                    yield StoredBlob(f"blake3:{record.subject[len(stem) :]}", index.size, index.by)
            more = page.pending > 0 and bool(page.records)

    @asynccontextmanager
    async def get(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - this reader may see every blob
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `ports.Blobs.get`."""
        name = check_digest(digest)
        await self._open()
        index = await self._find(name)
        if index is None:
            raise Rejected(f"{digest} is not stored", reason="no_blob")
        stream = self._download(index, digest)
        try:
            yield stream
        finally:
            await stream.aclose()

    async def has(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - this reader may see every blob
    ) -> bool:
        """See `ports.Blobs.has`."""
        name = check_digest(digest)
        await self._open()
        return await self._find(name) is not None

    async def remove(self, digest: str) -> None:
        """See `ports.Blobs.remove`."""
        name = check_digest(digest)
        await self._open()
        index = await self._find(name)
        if index is not None:
            await self._erase(f"{self._root}.blob.{name}")
            await self._erase(index.part)

    # --- inside -----------------------------------------------------------------------------

    async def _open(self) -> None:
        async with self._opening:
            if self._is_open:
                return
            try:
                await self._records.at(1)
            except Unavailable:
                self._connection.require_up()
                await self._streams.ensure(blobs_config(self._mesh, replicas=self._replicas))
            self._is_open = True

    async def _upload(self, chunks: AsyncIterator[bytes], part: str, digest: str) -> Index:
        hasher = blake3()
        size = 0
        seqs: list[int] = []
        flying: deque[asyncio.Task[int]] = deque()
        try:
            async for chunk in even(chunks):
                hasher.update(chunk)
                size += len(chunk)
                while len(flying) >= MAX_CHUNKS_IN_FLIGHT:
                    seqs.append(await flying.popleft())
                flying.append(asyncio.create_task(self._publish(part, chunk)))
            while flying:
                seqs.append(await flying.popleft())
        finally:
            await cancel_all(flying)
        if f"blake3:{hasher.hexdigest()}" != digest:
            raise Corrupt(f"the bytes do not hash to {digest}")
        return Index(part=part, size=size, runs=_runs(seqs))

    async def _download(self, index: Index, digest: str) -> AsyncGenerator[bytes]:
        parts = (self._chunk(seq, index.part, digest) for seq in index.sequences())
        ahead = MAX_CHUNKS_IN_FLIGHT - 1
        async with aclosing(verified(parts, digest, ahead=ahead, where="is stored")) as stream:
            async for chunk in stream:
                yield chunk

    async def _chunk(self, seq: int, part: str, digest: str) -> bytes:
        record = await self._records.at(seq)
        if record is not None and record.subject == part:
            return record.payload
        index = await self._find(check_digest(digest))
        if index is None or index.part != part:
            raise Rejected(f"{digest} was removed while it was read", reason="no_blob")
        raise Corrupt(f"a part of {digest} is missing")

    async def _find(self, name: str) -> Index | None:
        held = await self._records.last_on(f"{self._root}.blob.{name}")
        if held is None or _FREED in held.header:
            return None
        try:
            return _decode_index(held.record.payload)
        except UNREADABLE as error:
            raise Corrupt(f"the index of blake3:{name} is unreadable") from error

    async def _publish(self, subject: str, payload: bytes, header: bytes = _PLAIN) -> int:
        reply = await self._requester.write(
            wire.check_subject(subject), payload, header, timeout_s=WRITE_TIMEOUT_S
        )
        if wire.status_of(reply.header):
            raise Unavailable(
                "the engine does not serve the blobs (no responders): nothing was stored"
            )
        ack = _decode_ack(reply.payload)
        if ack.error is not None:
            raise Unavailable(f"the engine did not store a chunk: {ack.error.description}")
        return ack.seq

    async def _erase(self, subject: str) -> None:
        await self._publish(subject, b"", _ERASE)

    def _erase_soon(self, subject: str) -> None:
        """Without waiting: the caller is being cancelled, and what remains is invisible anyway."""
        if self._connection.up:
            target = wire.check_subject(subject)
            self._connection.send(wire.hpub(target, b"", _ERASE, b"_"))


def _encode_index(index: Index) -> bytes:
    encoded = msgspec.json.encode(index)
    if len(encoded) > MAX_INDEX_BYTES:
        raise Rejected(f"{index.size} bytes in {len(index.runs)} runs", reason="too_large")
    return encoded


async def _check_only(chunks: AsyncIterator[bytes], digest: str) -> None:
    """The bytes are stored already; what is offered must still match its digest."""
    hasher = blake3()
    async for chunk in chunks:
        hasher.update(chunk)
    if f"blake3:{hasher.hexdigest()}" != digest:
        raise Corrupt(f"the bytes do not hash to {digest}")


async def even(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in chunks of the engine's size."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= CHUNK_BYTES:
            yield bytes(held[:CHUNK_BYTES])
            del held[:CHUNK_BYTES]
    if held:
        yield bytes(held)


def _runs(seqs: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][0] + runs[-1][1] == seq:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((seq, 1))
    return runs


async def verified(
    parts: Iterator[Coroutine[Any, Any, bytes]], digest: str, *, ahead: int, where: str
) -> AsyncGenerator[bytes]:
    """A blob's parts in their order, `ahead` of them asked for before they are needed.

    The last one is held back until all hash to `digest`: a bad blob is never complete.
    """
    hasher = blake3()
    flying: deque[asyncio.Task[bytes]] = deque()
    try:
        for part in parts:
            flying.append(asyncio.create_task(part))
            if len(flying) > ahead:
                chunk = await flying.popleft()
                hasher.update(chunk)
                yield chunk
        while flying:
            chunk = await flying.popleft()
            hasher.update(chunk)
            if not flying and f"blake3:{hasher.hexdigest()}" != digest:
                break
            yield chunk
    finally:
        await cancel_all(flying)
    if f"blake3:{hasher.hexdigest()}" != digest:
        raise Corrupt(f"what {where} as {digest} hashes to something else")


async def cancel_all(tasks: deque[asyncio.Task[int]] | deque[asyncio.Task[bytes]]) -> None:
    """Cancel what is under way, and await every outcome."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def check_digest(digest: str) -> str:
    """The hexadecimal digits of a digest, or `Malformed`."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise Malformed(f"{digest!r} is not a digest", reason="digest")
    return found.group(1)
