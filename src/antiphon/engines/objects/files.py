"""The files of an archive or a backup in a bucket: `runtime.file_store.FileStore`.

Whoever writes holds an object `.lock` that says until when, and renews it. One that was killed is
waited for until then. Whoever loses the lock, or cannot renew it until then, stops writing. Clocks
that differ by more can let two write at once: what they write is the same, but for what one of them
erases.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import ObjectStore

from antiphon.decoding import UNREADABLE
from antiphon.engines.objects.store_errors import asked, stored
from antiphon.engines.objects.uploads import PART_BYTES, upload
from antiphon.errors import AntiphonError, Corrupt, Held
from antiphon.files import FileMissing

if TYPE_CHECKING:
    from obstore import PutMode, PutResult

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
READ_BYTES: Final = 1024 * 1024
LISTED: Final = 1000
"""Names in one answer of a store."""
LOCK: Final = ".lock"
LOCK_S: Final = 60.0


class _Lock(Struct, frozen=True):
    by: str
    until_ms: int


class ObjectFiles:
    """Files in one store, below a prefix that it adds."""

    def __init__(self, store: ObjectStore, *, shown_as: str, prefix: str = "") -> None:
        """`shown_as` is what errors call the place; the prefix ends with `/`, if there is one."""
        self._store = store
        self._shown_as = shown_as
        self._prefix = prefix

    def __str__(self) -> str:
        return self._shown_as

    def below(self, folder: str) -> ObjectFiles:
        """The files of one folder."""
        shown_as = f"{self._shown_as.rstrip('/')}/{folder}"
        return ObjectFiles(self._store, shown_as=shown_as, prefix=f"{self._prefix}{folder}/")

    def _at(self, path: str) -> str:
        return f"{self._prefix}{path}"

    # --- reading ------------------------------------------------------------------------------

    async def read(self, path: str, *, most: int = MAX_FILE_BYTES) -> bytes | None:
        """A small file; None if there is none."""
        try:
            found = await asked(obstore.get_async(self._store, self._at(path)), self._shown_as)
            if found.meta["size"] > most:
                raise Corrupt(f"{path} is larger than it can be")
            return bytes(await asked(found.bytes_async(), self._shown_as))
        except FileNotFoundError:
            return None

    async def parts(self, path: str) -> AsyncGenerator[bytes]:
        """A file in parts; `FileMissing` if there is none."""
        try:
            found = await asked(obstore.get_async(self._store, self._at(path)), self._shown_as)
        except FileNotFoundError:
            raise FileMissing(f"{self} lacks {path}") from None
        stream = aiter(found.stream(min_chunk_size=READ_BYTES))
        while True:
            try:
                part = await asked(anext(stream), self._shown_as)
            except StopAsyncIteration:
                return
            yield bytes(part)

    async def has(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            await asked(obstore.head_async(self._store, self._at(path)), self._shown_as)
        except FileNotFoundError:
            return False
        return True

    async def files(self, folder: str = "") -> AsyncGenerator[tuple[str, str]]:
        """All files below a folder, with marks."""
        pages = aiter(obstore.list(self._store, self._at(folder) or None, chunk_size=LISTED))
        while True:
            try:
                page = await asked(anext(pages), self._shown_as)
            except (StopAsyncIteration, FileNotFoundError):
                return
            for one in page:
                path = one["path"].removeprefix(self._prefix)
                if path != LOCK:
                    yield path, f"{one['size']} {one['e_tag']}"

    # --- writing ------------------------------------------------------------------------------

    async def write(self, path: str, data: bytes) -> None:
        """Put a file there, whole."""
        await stored(obstore.put_async(self._store, self._at(path), data), self._shown_as)

    async def write_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        """The same, from parts."""
        large = _large(parts)
        try:
            await upload(self._store, self._at(path), large, self._shown_as)
        finally:
            await large.aclose()

    async def remove(self, path: str) -> None:
        """Remove a file, or all files below a path."""
        await self._delete(path)
        async for below, _ in self.files(path):
            await self._delete(below)

    async def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            await asked(obstore.delete_async(self._store, self._at(path)), self._shown_as)

    # --- one writer at a time -----------------------------------------------------------------

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Be the only one that writes here while the block runs; `Held` if another one is.

        The block ends with `Held` as soon as the lock is another one's, or was not renewed in time.
        """
        mine, mode = secrets.token_hex(8), await self._expired_lock()
        until_s = asyncio.get_running_loop().time() + LOCK_S
        tag = await self._lock(mine, mode)
        held = asyncio.timeout_at(until_s)
        try:
            async with held:
                renewing = asyncio.create_task(self._renew(mine, tag, held))
                try:
                    yield
                finally:
                    renewing.cancel()
                    await asyncio.wait([renewing])
        except TimeoutError:
            if held.expired():
                raise self._held() from None
            raise
        finally:
            found, _ = await self._found_lock()
            if found is not None and found.by == mine:  # another one may have it since
                await self._delete(LOCK)

    async def _found_lock(self) -> tuple[_Lock | None, str | None]:
        """The lock that is there and its tag; no lock, but a tag, if it cannot be read."""
        try:
            found = await asked(obstore.get_async(self._store, self._at(LOCK)), self._shown_as)
            data = bytes(await asked(found.bytes_async(), self._shown_as))
        except FileNotFoundError:
            return None, None
        try:
            return msgspec.json.decode(data, type=_Lock), found.meta["e_tag"]
        except UNREADABLE:
            return None, found.meta["e_tag"]

    async def _expired_lock(self) -> PutMode:
        """How to take the lock: nobody has it, or whoever had it was killed."""
        found, tag = await self._found_lock()
        if found is not None and found.until_ms > _now_ms():
            raise self._held()
        return "create" if found is None and tag is None else _in_place_of(tag)

    async def _lock(self, mine: str, mode: PutMode) -> str | None:
        data = msgspec.json.encode(_Lock(mine, _now_ms() + round(LOCK_S * 1000)))
        try:
            put = await asked(self._put_if(data, mode), self._shown_as)
        except FileNotFoundError:
            put = None
        if put is None:
            raise self._held()
        return put["e_tag"]

    async def _put_if(self, data: bytes, mode: PutMode) -> PutResult | None:
        with suppress(AlreadyExistsError, PreconditionError):
            return await obstore.put_async(self._store, self._at(LOCK), data, mode=mode)
        return None

    async def _renew(self, mine: str, tag: str | None, held: asyncio.Timeout) -> None:
        """Keep the lock; the block that holds it ends when it is lost."""
        now_s = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOCK_S / 3)
            until_s = now_s() + LOCK_S
            try:
                tag = await self._renewed(mine, tag)
            except Held:
                held.reschedule(now_s())
                return
            except AntiphonError:  # there is time for another try
                continue
            held.reschedule(until_s)

    async def _renewed(self, mine: str, tag: str | None) -> str | None:
        try:
            return await self._lock(mine, _in_place_of(tag))
        except Held:
            found, now = await self._found_lock()
            if found is None or found.by != mine:
                raise
            return await self._lock(mine, _in_place_of(now))  # an answer was lost on its way

    def _held(self) -> Held:
        return Held(
            f"another process writes {self}",
            hint=f"if it was killed, try again in {LOCK_S:.0f} s",
        )


def _in_place_of(tag: str | None) -> PutMode:
    return {"e_tag": tag} if tag is not None else "overwrite"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _large(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes in parts that are as large as an upload's."""
    held = bytearray()
    async for part in parts:
        held += part
        while len(held) >= PART_BYTES:
            yield bytes(held[:PART_BYTES])
            del held[:PART_BYTES]
    if held:
        yield bytes(held)
