"""Artifacts: files that jobs read and write, by content (spec §9).

Content is named by its BLAKE3, with SHA-256 beside it for other tools. It streams both ways and is
never in memory as a whole. Small text travels inside the record that names it and is stored
nowhere else. Everything that arrives is checked against the digests and the size in its record
before it gets its name on disk.

Nothing here decides who may read or write: the engine does, and the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager
from typing import TYPE_CHECKING, Final

from blake3 import blake3
from msgspec import Struct

from antiphon.core.proof.output import Output, Stored
from antiphon.errors import Corrupt, Malformed, Misconfigured, Rejected, Unavailable, is_away
from antiphon.runtime.artifacts.safe_file import Draft, SafeFile, open_plain

if TYPE_CHECKING:
    from pathlib import Path

    from antiphon.ports import Blobs
    from antiphon.runtime.artifacts.blob_cache import BlobCache
    from antiphon.runtime.artifacts.waiting_blobs import WaitingBlobs

INLINE_BYTES: Final = 16 * 1024
"""Text up to this size travels in the record itself. A record has room for about sixteen."""
MAX_VALUE_BYTES: Final = 256 * 1024 * 1024
"""Arguments or a result as JSON; what is larger belongs into a file (docs/reference/values.md)."""
BLOCK_BYTES: Final = 1024 * 1024
"""What is read, hashed or written at once."""

_DIGEST: Final = re.compile(r"blake3:[0-9a-f]{64}", re.ASCII)

OnProgress = Callable[[int, int], None]
"""Receives the bytes done and the total; the total is 0 where it is unknown."""
JobName = tuple[str, str]
"""A job's kind and id."""


class Artifacts:
    """A node's access to content by digest."""

    def __init__(
        self,
        blobs: Blobs,
        cache: BlobCache | None = None,
        *,
        value_bytes: int = MAX_VALUE_BYTES,
        waiting: WaitingBlobs | None = None,
    ) -> None:
        """Without a cache everything comes from the engine.

        What cannot be stored because the engine is unreachable is kept in `waiting`, if there is
        such a place; whoever names it has to see to it that it is sent first.
        """
        self._blobs = blobs
        self._cache = cache
        self._waiting = waiting
        self.value_bytes = value_bytes
        """How large arguments or a result may be, which are in memory as a whole."""

    @property
    def at_once(self) -> Artifacts:
        """The same for content that does not wait: it is stored, or an error says why not."""
        if self._waiting is None:
            return self
        return Artifacts(self._blobs, self._cache, value_bytes=self.value_bytes)

    # --- in -----------------------------------------------------------------------------------

    async def keep(
        self,
        path: Path,
        name: str,
        *,
        media_type: str | None = None,
        on_progress: OnProgress | None = None,
        inline_bytes: int = INLINE_BYTES,
    ) -> Output:
        """Store a file's content; the output that a completion names.

        UTF-8 text of at most `inline_bytes` goes into the result and not to the engine. A file
        that changes while it is stored is `Corrupt`.
        """
        file = await asyncio.to_thread(open_plain, path)
        try:
            sums = await asyncio.to_thread(_sums_of, file)
            text = _text_of(file, sums) if sums.size <= inline_bytes else None
            if text is None:
                await self._put(lambda: _blocks(file, sums.size, on_progress), sums.digest)
        finally:
            os.close(file)
        if text is not None:
            return Output(name=name, type=media_type, text=text)
        return Output(name=name, type=media_type, stored=sums.stored)

    async def keep_bytes(self, data: bytes, name: str, *, media_type: str | None = None) -> Output:
        """Store content that is in memory."""
        sums = _Sums()
        if len(data) <= BLOCK_BYTES:
            sums.update(data)
        else:
            await asyncio.to_thread(sums.update, data)
        await self._put(lambda: _slices(data), sums.digest)
        return Output(name=name, type=media_type, stored=sums.stored)

    async def _put(self, chunks: Callable[[], AsyncIterator[bytes]], digest: str) -> None:
        try:
            await self._blobs.put(chunks(), digest=digest)
        except Unavailable as problem:
            if self._waiting is None or not is_away(problem):
                raise
            await self._waiting.put(chunks(), digest=digest)

    # --- out ----------------------------------------------------------------------------------

    async def fetch(
        self,
        wanted: Output | str,
        to: Path,
        *,
        job: JobName | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Write an artifact's content to a file of mode 0600, whole or not at all.

        `wanted` is an output, or a bare `blake3:…` digest. `job` names a job that reads or wrote
        it: a member needs one that it may read.
        """
        with SafeFile.at(to) as landing:
            await self._land(wanted, landing, job, on_progress)

    async def fetch_below(
        self,
        wanted: Output,
        directory: Path,
        *,
        job: JobName | None = None,
        on_progress: OnProgress | None = None,
    ) -> Path:
        """Write an output under its own name below a directory, and nowhere else; its path."""
        with SafeFile.within(directory, wanted.name) as landing:
            await self._land(wanted, landing, job, on_progress)
            return landing.path

    async def stream(
        self, wanted: Output | str, *, job: JobName | None = None
    ) -> AsyncGenerator[bytes]:
        """The content, piece by piece. Only its end shows that all of it was right."""
        expected = _Expected.of(wanted)
        sums = _Sums()
        async with aclosing(self._source(expected, wanted, job)) as chunks:
            async for chunk in chunks:
                sums.update(chunk)
                yield chunk
        sums.check(expected)

    async def read(
        self, wanted: Output | str, *, job: JobName | None = None, max_bytes: int
    ) -> bytes:
        """The content as a whole; `Malformed` if it is larger than that."""
        content = bytearray()
        async with aclosing(self.stream(wanted, job=job)) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > max_bytes:
                    raise Malformed(f"more than {max_bytes:,} bytes", reason="size")
        return bytes(content)

    async def is_stored(self, digest: str, *, job: JobName | None = None) -> bool:
        """Whether the engine has the bytes."""
        return await self._blobs.has(digest, job=job)

    async def _source(
        self, expected: _Expected, wanted: Output | str, job: JobName | None
    ) -> AsyncGenerator[bytes]:
        if isinstance(wanted, Output) and wanted.text is not None:
            yield wanted.text.encode()
            return
        if self._waiting is not None and self._waiting.has(expected.digest):
            async with aclosing(self._waiting.stream(expected.digest)) as kept:
                async for chunk in kept:
                    yield chunk
            return
        try:
            async with self._blobs.get(expected.digest, job=job) as chunks:
                async for chunk in chunks:
                    yield chunk
        except Rejected as problem:
            raise _gone(expected, problem) from problem

    async def _land(
        self,
        wanted: Output | str,
        landing: SafeFile,
        job: JobName | None,
        on_progress: OnProgress | None,
    ) -> None:
        expected = _Expected.of(wanted)
        if await self._from_cache(expected, landing, on_progress):
            return
        is_inline = isinstance(wanted, Output) and wanted.text is not None
        cache = None if is_inline else self._cache
        if cache is not None and not (expected.size is None or cache.takes(expected.size)):
            cache = None
        with self._drafts(landing, cache, expected.digest) as drafts:
            sums = _Sums()
            async with aclosing(self._source(expected, wanted, job)) as chunks:
                async for block in _gathered(chunks):
                    await asyncio.to_thread(_take_in, block, sums, drafts)
                    _tell(on_progress, sums.size, expected.size)
            sums.check(expected)
            is_cached = cache is not None and cache.takes(sums.size)
            await asyncio.to_thread(_settle, drafts if is_cached else drafts[:1])
        if is_cached and cache is not None:
            await asyncio.to_thread(cache.trim)

    @contextmanager
    def _drafts(
        self, landing: SafeFile, cache: BlobCache | None, digest: str
    ) -> Iterator[list[Draft]]:
        """The file itself, and the cache's copy if there is one."""
        with ExitStack() as stack:
            drafts = [stack.enter_context(Draft(landing))]
            if cache is not None:
                try:
                    place = stack.enter_context(cache.landing(digest))
                    drafts.append(stack.enter_context(Draft(place)))
                except (OSError, Misconfigured):
                    pass  # without a working cache, everything is only slower
            yield drafts

    async def _from_cache(
        self, expected: _Expected, landing: SafeFile, on_progress: OnProgress | None
    ) -> bool:
        """Whether the cache had it; a blob that does not match its name is removed."""
        cache = self._cache
        file = None if cache is None else await asyncio.to_thread(cache.find, expected.digest)
        if cache is None or file is None:
            return False
        try:
            with Draft(landing) as draft:
                sums = _Sums()
                while block := await asyncio.to_thread(os.read, file, BLOCK_BYTES):
                    await asyncio.to_thread(_take_in, block, sums, [draft])
                    _tell(on_progress, sums.size, expected.size)
                if sums.digest != expected.digest:
                    await asyncio.to_thread(cache.drop, expected.digest)
                    return False
                sums.check(expected)
                await asyncio.to_thread(draft.settle)
                return True
        finally:
            os.close(file)


def check_file(output: Output, path: Path) -> None:
    """`Corrupt` unless a file is exactly what an output names; blocks while it reads."""
    file = open_plain(path)
    try:
        _sums_of(file).check(_Expected.of(output))
    finally:
        os.close(file)


# --- sums -------------------------------------------------------------------------------------


class _Expected(Struct, frozen=True):
    """What a record says about some content."""

    digest: str
    sha256: str | None = None
    size: int | None = None

    @classmethod
    def of(cls, wanted: Output | str) -> _Expected:
        digest = wanted if isinstance(wanted, str) else wanted.hash
        if _DIGEST.fullmatch(digest) is None:  # it becomes a file's name
            raise Malformed(f"{digest[:80]!r} is not a digest", reason="digest")
        if isinstance(wanted, str):
            return cls(digest)
        return cls(digest, wanted.sha256, wanted.size)


class _Sums:
    """Both digests and the size of what was seen so far."""

    def __init__(self) -> None:
        self._blake3 = blake3()
        self._sha256 = hashlib.sha256()
        self.size = 0

    def update(self, data: bytes) -> None:
        self._blake3.update(data)
        self._sha256.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        return f"blake3:{self._blake3.hexdigest()}"

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    @property
    def stored(self) -> Stored:
        return Stored(hash=self.digest, size=self.size, sha256=self.sha256)

    def check(self, expected: _Expected) -> None:
        """`Corrupt` unless the content matches all that is known of it."""
        if self.digest != expected.digest:
            raise Corrupt(f"the content for {expected.digest} hashes to {self.digest}")
        if expected.size is not None and self.size != expected.size:
            raise Corrupt(
                f"{expected.digest} has {self.size} bytes; its record says {expected.size}"
            )
        if expected.sha256 is not None and self.sha256 != expected.sha256:
            raise Corrupt(f"{expected.digest} does not have the SHA-256 in its record")


def _sums_of(file: int) -> _Sums:
    sums = _Sums()
    while block := os.read(file, BLOCK_BYTES):
        sums.update(block)
    return sums


def _text_of(file: int, sums: _Sums) -> str | None:
    """A small file's text; None if it is not UTF-8. `Corrupt` if it changed since it was hashed."""
    raw = os.pread(file, sums.size + 1, 0)
    again = _Sums()
    again.update(raw)
    again.check(_Expected(sums.digest, sums.sha256, sums.size))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


# --- streams ----------------------------------------------------------------------------------


async def _slices(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), BLOCK_BYTES):
        yield data[start : start + BLOCK_BYTES]


async def _blocks(file: int, size: int, on_progress: OnProgress | None) -> AsyncIterator[bytes]:
    done = 0
    while block := await asyncio.to_thread(os.pread, file, BLOCK_BYTES, done):
        yield block
        done += len(block)
        _tell(on_progress, done, size)


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in blocks that are large enough for a thread."""
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        if len(held) >= BLOCK_BYTES:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _take_in(block: bytes, sums: _Sums, drafts: list[Draft]) -> None:
    sums.update(block)
    for draft in drafts:
        draft.write(block)


def _settle(drafts: list[Draft]) -> None:
    for at, draft in enumerate(drafts):
        draft.settle(is_durable=at == 0)  # a cached blob is checked at every use anyway


def _tell(on_progress: OnProgress | None, done: int, size: int | None) -> None:
    if on_progress is not None:
        on_progress(done, size or 0)


def _gone(expected: _Expected, problem: Rejected) -> Rejected:
    if problem.reason != "no_blob":
        return problem
    return Rejected(
        f"{expected.digest} is not stored on this mesh: it was evicted, or was never stored",
        reason="no_blob",
        hint="antiphon artifacts JOB shows what is still stored",
    )
