"""Blobs: bytes by their digest, whole or not at all."""

# A test's name states the behaviour.
# ruff: noqa: D102

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from blake3 import blake3

from antiphon.errors import Corrupt, Rejected
from antiphon.ports import Engine
from antiphon.testing.engine_suite.harness import EngineSuite, refused

LARGE = 8 * 1024 * 1024
MAX_CHUNK = 1024 * 1024
"""A reader of a large blob never holds more than this at once."""


def digest_of(blob: bytes) -> str:
    """The name of some bytes."""
    return f"blake3:{blake3(blob).hexdigest()}"


async def chunks_of(blob: bytes, size: int) -> AsyncIterator[bytes]:
    """A stream of pieces, as a file gives them."""
    for at in range(0, len(blob), size):
        yield blob[at : at + size]
        await asyncio.sleep(0)


async def broken(blob: bytes) -> AsyncIterator[bytes]:
    """A stream whose source fails midway."""
    yield blob
    raise ConnectionResetError("the source went away")


async def fetch(engine: Engine, digest: str) -> bytes:
    """The whole of a blob."""
    async with engine.blobs.get(digest) as chunks:
        return b"".join([chunk async for chunk in chunks])


class BlobSuite(EngineSuite):
    """Put, get, has, remove."""

    async def test_a_blob_comes_back(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            for blob in (b"", b"small", bytes(range(256)) * 700):
                digest = digest_of(blob)
                assert not await two.blobs.has(digest)
                await one.blobs.put(chunks_of(blob, 1000), digest=digest)
                assert await two.blobs.has(digest)
                assert await fetch(two, digest) == blob

    async def test_putting_it_again_changes_nothing(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            blob = b"again" * 1000
            for engine in (one, two, one):
                await engine.blobs.put(chunks_of(blob, 999), digest=digest_of(blob))
            assert await fetch(two, digest_of(blob)) == blob

    async def test_many_may_put_it_at_once(self) -> None:
        async with self.site() as site:
            engines = await site.connect_many(4)
            blob = b"together" * 50_000
            await asyncio.gather(
                *(
                    engine.blobs.put(chunks_of(blob, 65_536), digest=digest_of(blob))
                    for engine in engines
                )
            )
            assert await fetch(engines[0], digest_of(blob)) == blob

    async def test_bytes_under_a_wrong_digest_are_refused(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            digest = digest_of(b"what was promised")
            with refused(Corrupt):
                await engine.blobs.put(chunks_of(b"what came", 4), digest=digest)
            assert not await engine.blobs.has(digest)

    async def test_an_absent_blob_is_said_to_be(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            with refused(Rejected) as caught:
                await fetch(engine, digest_of(b"nobody put this"))
            assert isinstance(caught.error, Rejected)
            assert caught.error.reason == "no_blob"

    async def test_a_removed_blob_is_gone_and_may_come_back(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            digest = digest_of(b"blob")
            await engine.blobs.remove(digest)  # absent: no error
            await engine.blobs.put(chunks_of(b"blob", 2), digest=digest)
            await engine.blobs.remove(digest)
            assert not await engine.blobs.has(digest)
            await engine.blobs.put(chunks_of(b"blob", 2), digest=digest)
            assert await fetch(engine, digest) == b"blob"

    async def test_a_large_blob_streams(self) -> None:
        async with self.site() as site:
            one, two = await site.connect_many(2)
            blob = bytes(range(256)) * (LARGE // 256)
            digest = digest_of(blob)
            await one.blobs.put(chunks_of(blob, 300_000), digest=digest)
            hasher, largest = blake3(), 0
            async with two.blobs.get(digest) as chunks:
                async for chunk in chunks:
                    hasher.update(chunk)
                    largest = max(largest, len(chunk))
            assert f"blake3:{hasher.hexdigest()}" == digest
            assert largest <= MAX_CHUNK

    async def test_an_aborted_put_leaves_nothing_to_see(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            blob = bytes(300_000)
            digest = digest_of(blob)
            try:
                await engine.blobs.put(broken(blob), digest=digest)
            except ConnectionResetError:
                pass
            else:
                raise AssertionError("the source's error was swallowed")
            assert not await engine.blobs.has(digest)
            await engine.blobs.put(chunks_of(blob, 100_000), digest=digest)
            assert await fetch(engine, digest) == blob

    async def test_a_reader_may_stop_early(self) -> None:
        async with self.site() as site:
            engine = await site.connect()
            blob = bytes(LARGE // 4)
            digest = digest_of(blob)
            await engine.blobs.put(chunks_of(blob, 300_000), digest=digest)
            async with engine.blobs.get(digest) as chunks:
                assert await anext(chunks)
            assert await fetch(engine, digest) == blob
