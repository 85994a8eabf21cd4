"""`ports.Blobs` on an object store.

A blob is one object, `<mesh>/blake3/<hex>`. It is written straight to that name, because an
object only ever appears whole: a small one by one request, a larger one when its parts are put
together by a last request. That request is made after all bytes had the right digest, so what is
cut off, cancelled or wrong is never visible. Parts without that last request are invisible; they
are aborted while the store can still be reached, and otherwise by the bucket's lifecycle rule.

The bucket decides who may read, so `job` has no effect here.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import obstore
from blake3 import blake3
from obstore.store import ObjectStore

from antiphon.engines.objects.store_errors import asked
from antiphon.engines.objects.uploads import PART_BYTES, upload
from antiphon.errors import Corrupt, Malformed, Rejected

MAX_PARTS: Final = 10_000
"""What the S3 protocol allows for one object: 78 GiB with parts of this size."""
RANGE_BYTES: Final = 2 * 1024 * 1024
RANGES_IN_FLIGHT: Final = 4
CHUNK_BYTES: Final = 256 * 1024
"""What a reader gets at once."""

_DIGEST: Final = re.compile(r"blake3:([0-9a-f]{64})", re.ASCII)


class ObjectBlobs:
    """A mesh's blobs in one store."""

    def __init__(self, store: ObjectStore, mesh: str, *, shown_as: str) -> None:
        """`shown_as` is what errors call the store."""
        self._store = store
        self._mesh = mesh
        self._shown_as = shown_as

    def __repr__(self) -> str:
        return f"ObjectBlobs({self._shown_as})"

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """See `ports.Blobs.put`."""
        path = self._path(digest)
        parts = _checked_parts(chunks, digest)
        try:
            if await self._size_of(path) is not None:
                async for _ in parts:
                    pass  # it is stored already; what is offered must still match its digest
                return
            await upload(self._store, path, parts, self._shown_as)
        finally:
            await parts.aclose()

    @asynccontextmanager
    async def get(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - the bucket decides who reads
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `ports.Blobs.get`."""
        path = self._path(digest)
        size = await self._size_of(path)
        if size is None:
            raise Rejected(f"{digest} is not stored", reason="no_blob")
        stream = self._download(path, size, digest)
        try:
            yield stream
        finally:
            await stream.aclose()

    async def has(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - the bucket decides who reads
    ) -> bool:
        """See `ports.Blobs.has`."""
        return await self._size_of(self._path(digest)) is not None

    async def remove(self, digest: str) -> None:
        """See `ports.Blobs.remove`."""
        with suppress(FileNotFoundError):
            await asked(obstore.delete_async(self._store, self._path(digest)), self._shown_as)

    # --- inside -----------------------------------------------------------------------------

    def _path(self, digest: str) -> str:
        found = _DIGEST.fullmatch(digest)
        if found is None:
            raise Malformed(f"{digest[:80]!r} is not a digest", reason="digest")
        return f"{self._mesh}/blake3/{found.group(1)}"

    async def _size_of(self, path: str) -> int | None:
        try:
            meta = await asked(obstore.head_async(self._store, path), self._shown_as)
        except FileNotFoundError:
            return None
        return meta["size"]

    async def _download(self, path: str, size: int, digest: str) -> AsyncGenerator[bytes]:
        hasher = blake3()
        flying: deque[asyncio.Task[bytes]] = deque()
        starts = iter(range(0, size, RANGE_BYTES))
        held = b""
        try:
            while True:
                while len(flying) < RANGES_IN_FLIGHT and (start := next(starts, None)) is not None:
                    flying.append(asyncio.create_task(self._range(path, start, size, digest)))
                if not flying:
                    break
                block = await flying.popleft()
                hasher.update(block)
                for chunk in _chunks_of(block):
                    if held:
                        yield held
                    held = chunk  # the last one is held back: a bad blob is never complete
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
        if f"blake3:{hasher.hexdigest()}" != digest:
            raise Corrupt(f"what is stored as {digest} hashes to something else")
        if held:
            yield held

    async def _range(self, path: str, start: int, size: int, digest: str) -> bytes:
        end = min(start + RANGE_BYTES, size)
        reading = self._read(path, start, end) if end - start < size else self._read_all(path)
        try:
            return await asked(reading, self._shown_as)
        except FileNotFoundError:
            pass
        raise Rejected(f"{digest} was removed while it was read", reason="no_blob")

    async def _read(self, path: str, start: int, end: int) -> bytes:
        return bytes(await obstore.get_range_async(self._store, path, start=start, end=end))

    async def _read_all(self, path: str) -> bytes:
        """A small object: some stores answer a range that is all of it as if none was asked for."""
        found = await obstore.get_async(self._store, path)
        if found.meta["size"] > RANGE_BYTES:
            raise Corrupt(f"{path} was replaced while it was read")
        return bytes(await found.bytes_async())


async def _checked_parts(chunks: AsyncIterator[bytes], digest: str) -> AsyncGenerator[bytes]:
    """The same bytes in parts; ends well only if they have the digest and are not too many."""
    hasher = blake3()
    held = bytearray()
    count = 0
    async for chunk in chunks:
        hasher.update(chunk)
        held += chunk
        while len(held) >= PART_BYTES:
            count += 1
            if count == MAX_PARTS:
                raise Rejected(f"{digest} is too large for one object", reason="too_large")
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if f"blake3:{hasher.hexdigest()}" != digest:
        raise Corrupt(f"the bytes do not hash to {digest}")
    if held:
        yield bytes(held)


def _chunks_of(block: bytes) -> Iterator[bytes]:
    for at in range(0, len(block), CHUNK_BYTES):
        yield block[at : at + CHUNK_BYTES]
