"""Blobs in two places: written to the first, read from both, removed from both.

A mesh that moves its artifacts to a bucket still has the earlier ones, and a machine that does not
know the bucket keeps storing on the mesh.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from antiphon.errors import Rejected

if TYPE_CHECKING:
    from antiphon.ports import Blobs


class MirroredBlobs:
    """`ports.Blobs` over two others."""

    def __init__(self, first: Blobs, second: Blobs) -> None:
        self._first = first
        self._second = second

    async def put(self, chunks: AsyncIterator[bytes], *, digest: str) -> None:
        """Store in the first."""
        await self._first.put(chunks, digest=digest)

    @asynccontextmanager
    async def get(
        self, digest: str, *, job: tuple[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream from the first that has it."""
        async with AsyncExitStack() as stack:
            try:
                chunks = await stack.enter_async_context(self._first.get(digest, job=job))
            except Rejected as absent:
                if absent.reason != "no_blob":
                    raise
                chunks = await stack.enter_async_context(self._second.get(digest, job=job))
            yield chunks

    async def has(self, digest: str, *, job: tuple[str, str] | None = None) -> bool:
        """Whether one of them has it whole."""
        if await self._first.has(digest, job=job):
            return True
        return await self._second.has(digest, job=job)

    async def remove(self, digest: str) -> None:
        """Remove it from both."""
        await self._first.remove(digest)
        await self._second.remove(digest)
