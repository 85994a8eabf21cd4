"""Leases and blobs on NATS: the ends of keys, and what an interrupted upload leaves."""

import asyncio
import contextlib

import pytest
from blake3 import blake3

from antiphon.engines.nats import blobs
from antiphon.engines.nats.log.streams import Streams, blobs_name
from antiphon.errors import Corrupt, Rejected
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect
from tests.local_server import shared_server
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats


def digest_of(data):
    return f"blake3:{blake3(data).hexdigest()}"


async def pieces(data, size=50_000):
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def stored(engine, mesh):
    info = await Streams(engine._requester).info(blobs_name(mesh))
    return info["state"]["messages"]


async def test_an_end_is_rounded_up_to_a_whole_second():
    async with await connect(shared_server(), new_mesh()) as engine:
        entry = await engine.leases.create("k", b"", ttl_ms=1)
        held = await engine.leases._read("k")
        assert b"\r\nNats-TTL: 1s\r\n" in held.header
        await engine.leases.renew(entry, b"", ttl_ms=1001)
        assert b"\r\nNats-TTL: 2s\r\n" in (await engine.leases._read("k")).header


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", "a b", "a.*", ">", "a\r\n"])
async def test_a_key_is_made_of_tokens(key):
    async with await connect(shared_server(), new_mesh()) as engine:
        with pytest.raises(Rejected):
            await engine.leases.create(key, b"", ttl_ms=1000)


async def test_an_aborted_upload_leaves_nothing():
    mesh, data = new_mesh(), bytes(3 * blobs.CHUNK_BYTES)
    async with await connect(shared_server(), mesh) as engine:
        await engine.blobs.has(digest_of(data))

        async def stuck():
            yield data
            await asyncio.sleep(60)

        task = asyncio.create_task(engine.blobs.put(stuck(), digest=digest_of(data)))
        while await stored(engine, mesh) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert not await engine.blobs.has(digest_of(data))
        async with asyncio.timeout(PATIENCE_S):
            while await stored(engine, mesh):
                await asyncio.sleep(0.05)


async def test_a_wrong_digest_leaves_nothing():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        with pytest.raises(Corrupt):
            await engine.blobs.put(pieces(b"these"), digest=digest_of(b"those"))
        async with asyncio.timeout(PATIENCE_S):
            while await stored(engine, mesh):
                await asyncio.sleep(0.05)


async def test_a_removed_blob_gives_its_room_back():
    mesh, data = new_mesh(), bytes(range(256)) * 4096
    async with await connect(shared_server(), mesh) as engine:
        for _ in range(2):
            await engine.blobs.put(pieces(data), digest=digest_of(data))
        assert await stored(engine, mesh) >= 9
        await engine.blobs.remove(digest_of(data))
        assert not await engine.blobs.has(digest_of(data))
        async with asyncio.timeout(PATIENCE_S):
            while await stored(engine, mesh):
                await asyncio.sleep(0.05)


async def test_a_blob_that_was_tampered_with_never_looks_whole():
    mesh, data = new_mesh(), bytes(range(256)) * 2048
    async with await connect(shared_server(), mesh) as engine:
        await engine.blobs.put(pieces(data), digest=digest_of(data))
        other = digest_of(b"something else")
        index = await engine.blobs._find(digest_of(data)[7:])
        forged = b'{"part":"%b","size":%d,"runs":[[%d,%d]]}' % (
            index.part.encode(),
            index.size,
            *index.runs[0],
        )
        await engine.blobs._publish(f"apo.{mesh}.blob.{other[7:]}", forged)
        got = bytearray()

        async def download():
            async with engine.blobs.get(other) as chunks:
                async for chunk in chunks:
                    got.extend(chunk)

        with pytest.raises(Corrupt):
            await download()
        assert len(got) < len(data)


async def test_a_large_blob_comes_back_in_small_pieces():
    mesh = new_mesh()
    data = bytes(range(251)) * 80_000
    async with await connect(shared_server(), mesh) as engine:
        await engine.blobs.put(pieces(data, 777_777), digest=digest_of(data))
        hasher, largest = blake3(), 0
        async with engine.blobs.get(digest_of(data)) as chunks:
            async for chunk in chunks:
                hasher.update(chunk)
                largest = max(largest, len(chunk))
        assert f"blake3:{hasher.hexdigest()}" == digest_of(data)
        assert largest <= blobs.CHUNK_BYTES
