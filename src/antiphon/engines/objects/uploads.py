"""Writes an object of any size: it appears whole, or not at all.

A small one is one request. A larger one goes in parts, and appears with a last request that is made
after all of them; parts without it are invisible, and aborted while the store can be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import obstore
from obstore.store import ObjectStore

from antiphon.engines.objects.store_errors import stored

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_IN_FLIGHT: Final = 3
GIVING_BACK_S: Final = 10.0
"""How long a failed upload may take to abort its parts."""


async def upload(store: ObjectStore, path: str, parts: AsyncIterator[bytes], shown_as: str) -> None:
    """Write an object from parts, each but the last of `PART_BYTES`.

    If they end with an error, there is none.
    """
    first = await anext(parts, b"")
    second = await anext(parts, None)
    if second is None:
        await stored(obstore.put_async(store, path, first), shown_as)
        return
    # In a task that this one feeds: the source stays in its reader's own task.
    handoff = _Handoff()
    uploading = asyncio.create_task(_upload_from(store, path, handoff, shown_as))
    try:
        await _give(handoff, uploading, first)
        await _give(handoff, uploading, second)
        async for part in parts:
            await _give(handoff, uploading, part)
        await _give(handoff, uploading, None)
        await asyncio.shield(uploading)
    except BaseException:
        handoff.abandon()
        await asyncio.wait({uploading}, timeout=GIVING_BACK_S)
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)
        raise


class _Abandoned(Exception):
    """Tells an upload to abort its parts."""


class _Handoff:
    """Parts on their way to an upload, one at a time.

    It ends when it is told to, and never because its writer left: an end makes the object.
    """

    def __init__(self) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=1)
        self._is_abandoned = False

    def __aiter__(self) -> _Handoff:
        return self

    async def __anext__(self) -> bytes:
        part = None if self._is_abandoned else await self._parts.get()
        if self._is_abandoned:
            raise _Abandoned
        if part is None:
            raise StopAsyncIteration
        return part

    async def give(self, part: bytes | None) -> None:
        """Wait until the upload has room for one more; None is the end."""
        await self._parts.put(part)

    def abandon(self) -> None:
        """No end will come."""
        self._is_abandoned = True
        if self._parts.empty():
            self._parts.put_nowait(None)  # wakes the task that waits


async def _upload_from(store: ObjectStore, path: str, parts: _Handoff, shown_as: str) -> None:
    uploading = obstore.put_async(
        store, path, parts, chunk_size=PART_BYTES, max_concurrency=PARTS_IN_FLIGHT
    )
    await stored(uploading, shown_as)


async def _give(handoff: _Handoff, upload: asyncio.Task[None], part: bytes | None) -> None:
    """Pass on a part, or raise the error that the upload ended with."""
    giving = asyncio.create_task(handoff.give(part))
    try:
        await asyncio.wait({giving, upload}, return_when=asyncio.FIRST_COMPLETED)
        if upload.done():
            upload.result()
    finally:
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
