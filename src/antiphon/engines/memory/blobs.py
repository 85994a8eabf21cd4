"""Blobs: bytes by their digest. A blob appears whole or not at all."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from blake3 import blake3

from antiphon.engines.memory.connection import Connection
from antiphon.errors import Corrupt, Malformed, Rejected

CHUNK = 128 * 1024
"""Bytes per chunk on the way out."""

_DIGEST = re.compile(r"blake3:[0-9a-f]{64}", re.ASCII)

BlobStore = dict[str, bytes]


class MemoryBlobs:
    """`ports.Blobs` over one connection."""

    def __init__(self, connection: Connection, store: BlobStore) -> None:
        self._connection = connection
        self._store = store

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """Store a stream of chunks if it hashes to its digest."""
        _check(digest)
        self._connection.check()
        hasher = blake3()
        parts: list[bytes] = []
        async for chunk in chunks:
            hasher.update(chunk)
            parts.append(chunk)
        if f"blake3:{hasher.hexdigest()}" != digest:
            raise Corrupt(f"the bytes do not hash to {digest}")
        work = partial(self._store.__setitem__, digest, b"".join(parts))
        await self._connection.write("blob.put", work)

    @asynccontextmanager
    async def get(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - this reader may see every blob
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream a blob."""
        _check(digest)
        blob = await self._connection.read("blob.get", partial(self._store.get, digest))
        if blob is None:
            raise Rejected(f"{digest} is not stored", reason="no_blob")
        yield self._stream(blob, digest)

    async def has(
        self,
        digest: str,
        *,
        job: tuple[str, str] | None = None,  # noqa: ARG002 - this reader may see every blob
    ) -> bool:
        """Whether the blob is stored whole."""
        _check(digest)
        return await self._connection.read("blob.has", lambda: digest in self._store)

    async def remove(self, digest: str) -> None:
        """Forget a blob."""
        _check(digest)
        await self._connection.write("blob.remove", partial(self._store.pop, digest, None))

    async def _stream(self, blob: bytes, digest: str) -> AsyncIterator[bytes]:
        if f"blake3:{blake3(blob).hexdigest()}" != digest:
            raise Corrupt(f"what is stored as {digest} hashes to something else")
        for at in range(0, len(blob), CHUNK):
            await self._connection.running()
            yield blob[at : at + CHUNK]


def _check(digest: str) -> None:
    if _DIGEST.fullmatch(digest) is None:
        raise Malformed(f"{digest!r} is not a digest", reason="digest")
