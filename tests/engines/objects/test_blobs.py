"""Blobs on object stores in memory and in a folder: the same code that talks to a bucket."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from antiphon.engines.objects import Bucket, open_bucket
from antiphon.engines.objects import blobs as module
from antiphon.engines.objects.blobs import ObjectBlobs
from antiphon.errors import Corrupt, Malformed, Misconfigured, Rejected
from antiphon.runtime.artifacts.mirrored_blobs import MirroredBlobs
from antiphon.testing import engine_suite as suite
from antiphon.testing.engine_suite.artifacts import chunks_of, digest_of
from tests.engines.objects.stores import PIECES, BlobHarness

MESH = "a" * 16
LARGE = bytes(range(256)) * (20 * 1024 * 1024 // 256)
"""Two whole parts and a rest."""


@asynccontextmanager
async def memory(*, own_server: bool) -> AsyncIterator[BlobHarness]:
    store = MemoryStore()
    yield BlobHarness(lambda mesh: ObjectBlobs(store, mesh, shown_as="memory"))


@asynccontextmanager
async def folder(*, own_server: bool) -> AsyncIterator[BlobHarness]:
    with tempfile.TemporaryDirectory() as place:
        store = LocalStore(place)
        yield BlobHarness(lambda mesh: ObjectBlobs(store, mesh, shown_as="a folder"))


@asynccontextmanager
async def two(*, own_server: bool) -> AsyncIterator[BlobHarness]:
    one, other = MemoryStore(), MemoryStore()
    yield BlobHarness(
        lambda mesh: MirroredBlobs(
            ObjectBlobs(one, mesh, shown_as="first"), ObjectBlobs(other, mesh, shown_as="second")
        )
    )


class TestInMemory(suite.BlobSuite):
    harness = staticmethod(memory)


class TestInAFolder(suite.BlobSuite):
    harness = staticmethod(folder)


class TestInTwoStores(suite.BlobSuite):
    harness = staticmethod(two)


async def fetch(blobs, digest: str, into: list[bytes] | None = None) -> bytes:
    seen = [] if into is None else into
    async with blobs.get(digest) as chunks:
        async for chunk in chunks:
            seen.append(chunk)
    return b"".join(seen)


async def put(blobs, blob: bytes) -> str:
    await blobs.put(chunks_of(blob, PIECES), digest=digest_of(blob))
    return digest_of(blob)


def files_in(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [0, 1, module.PART_BYTES, module.PART_BYTES + 1, len(LARGE)])
async def test_every_size_comes_back(tmp_path, size):
    blobs = ObjectBlobs(LocalStore(tmp_path), MESH, shown_as="a folder")
    assert await fetch(blobs, await put(blobs, LARGE[:size])) == LARGE[:size]
    assert len(files_in(tmp_path)) == 1


async def test_nothing_shows_while_an_upload_is_under_way_and_nothing_stays_if_it_is_cancelled(
    tmp_path,
):
    blobs = ObjectBlobs(LocalStore(tmp_path), MESH, shown_as="a folder")
    digest = digest_of(LARGE)
    has_given, never = asyncio.Event(), asyncio.Event()

    async def stuck():
        yield LARGE[: 2 * module.PART_BYTES + 5]
        has_given.set()
        await never.wait()

    putting = asyncio.create_task(blobs.put(stuck(), digest=digest))
    await has_given.wait()
    await asyncio.sleep(0.1)
    assert files_in(tmp_path), "parts are on their way"
    assert not await blobs.has(digest)
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert not await blobs.has(digest)
    assert files_in(tmp_path) == [], "its parts were given back"
    assert await fetch(blobs, await put(blobs, LARGE)) == LARGE


async def test_a_large_blob_with_one_wrong_byte_is_refused_and_leaves_nothing(tmp_path):
    blobs = ObjectBlobs(LocalStore(tmp_path), MESH, shown_as="a folder")
    wrong = LARGE[:-1] + b"!"
    with pytest.raises(Corrupt):
        await blobs.put(chunks_of(wrong, PIECES), digest=digest_of(LARGE))
    assert not await blobs.has(digest_of(LARGE))
    assert files_in(tmp_path) == []


async def test_a_source_of_its_own_error_keeps_it(tmp_path):
    blobs = ObjectBlobs(LocalStore(tmp_path), MESH, shown_as="a folder")

    async def broken():
        yield LARGE
        raise FileNotFoundError("the source went away")

    with pytest.raises(FileNotFoundError, match="the source"):
        await blobs.put(broken(), digest=digest_of(LARGE))
    assert files_in(tmp_path) == []


async def test_what_is_offered_again_must_still_be_right():
    blobs = ObjectBlobs(MemoryStore(), MESH, shown_as="memory")
    digest = await put(blobs, b"first")
    with pytest.raises(Corrupt):
        await blobs.put(chunks_of(b"other", 2), digest=digest)
    assert await fetch(blobs, digest) == b"first"


@pytest.mark.parametrize("tampered", [LARGE[:-1] + b"!", LARGE[:-1], LARGE + b"!", b""])
async def test_a_tampered_object_never_looks_whole(tampered):
    store = MemoryStore()
    blobs = ObjectBlobs(store, MESH, shown_as="memory")
    digest = digest_of(LARGE)
    await obstore.put_async(store, f"{MESH}/blake3/{digest[7:]}", tampered)
    seen: list[bytes] = []
    with pytest.raises(Corrupt):
        await fetch(blobs, digest, into=seen)
    assert sum(map(len, seen)) < max(len(tampered), 1), "the end is held back"


async def test_an_object_that_goes_while_it_is_read_is_said_to_be_gone():
    blobs = ObjectBlobs(MemoryStore(), MESH, shown_as="memory")
    digest = await put(blobs, LARGE)
    async with blobs.get(digest) as chunks:
        await anext(chunks)
        await blobs.remove(digest)
        with pytest.raises(Rejected) as refused:
            assert not [chunk async for chunk in chunks]
    assert refused.value.reason == "no_blob"


async def test_meshes_share_a_bucket_and_nothing_in_it():
    store = MemoryStore()
    one, other = (ObjectBlobs(store, mesh, shown_as="memory") for mesh in (MESH, "b" * 16))
    digest = await put(one, b"blob")
    assert not await other.has(digest)
    await other.remove(digest)
    assert await one.has(digest)


@pytest.mark.parametrize("digest", ["", "blake3:../x", "sha256:" + "0" * 64, "blake3:" + "A" * 64])
async def test_only_a_digest_becomes_a_name(digest):
    blobs = ObjectBlobs(MemoryStore(), MESH, shown_as="memory")
    for call in (blobs.has, blobs.remove, lambda name: blobs.put(chunks_of(b"", 1), digest=name)):
        with pytest.raises(Malformed):
            await call(digest)
    with pytest.raises(Malformed):
        async with blobs.get(digest):
            pass


async def test_a_blob_of_too_many_parts_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_PARTS", 2)
    blobs = ObjectBlobs(MemoryStore(), MESH, shown_as="memory")
    with pytest.raises(Rejected) as refused:
        await put(blobs, LARGE)
    assert refused.value.reason == "too_large"
    assert not await blobs.has(digest_of(LARGE))


# --- two stores -------------------------------------------------------------------------------


async def test_what_was_stored_before_the_bucket_came_is_still_found():
    before = ObjectBlobs(MemoryStore(), MESH, shown_as="before")
    after = ObjectBlobs(MemoryStore(), MESH, shown_as="after")
    both = MirroredBlobs(after, before)
    old, new = await put(before, b"old"), await put(both, b"new")
    assert await fetch(both, old) == b"old"
    assert await fetch(both, new) == b"new"
    assert not await before.has(new)
    await both.remove(old)
    assert not await both.has(old)


# --- opening ----------------------------------------------------------------------------------


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    for name in ("blobs", "store_errors"):
        monkeypatch.delitem(sys.modules, f"antiphon.engines.objects.{name}")
    with pytest.raises(Misconfigured) as refused:
        open_bucket(Bucket(url="s3://bucket"), MESH)
    assert refused.value.hint == "pip install 'antiphon[s3]'"
    assert refused.value.__context__ is None
