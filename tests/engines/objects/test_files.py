"""The files of archives and backups: the same in a folder and in a bucket, on a server of S3."""

import asyncio
import time
from contextlib import aclosing, nullcontext

import pytest

from antiphon.engines.objects import Bucket, files, open_files
from antiphon.engines.objects.connection import _open
from antiphon.engines.objects.uploads import PART_BYTES
from antiphon.errors import Corrupt, Held, Misconfigured, Unavailable
from antiphon.runtime.file_store import FolderStore, copy_files, writing
from tests.engines.objects.stores import BUCKET, s3_server
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def server():
    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(server, monkeypatch, request):
    """A place of its own in the bucket for each test."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    _open.cache_clear()
    url = f"s3://{BUCKET}/files/{request.node.name.partition('[')[0]}"
    yield open_files(Bucket(url=url, endpoint=server.address, region="eu-central-1"))
    _open.cache_clear()


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderStore(tmp_path / "files")
    return request.getfixturevalue("bucket")


async def parts_of(data, piece=1 << 20, *, fails=False):
    for at in range(0, len(data), piece):
        yield data[at : at + piece]
    if fails:
        raise KeyError("the source failed")


async def read_parts(store, path):
    async with aclosing(store.parts(path)) as parts:
        return b"".join([part async for part in parts])


async def listed(store, folder=""):
    async with aclosing(store.files(folder)) as found:
        return dict(sorted([one async for one in found]))


async def test_files_are_written_read_listed_and_removed(store):
    assert await store.read("a/b/one") is None
    assert not await store.has("a/b/one")
    assert await listed(store) == {}
    await store.write("a/b/one", b"1")
    await store.write("a/two", b"2")
    await store.write("ab", b"3")
    assert await store.read("a/b/one") == b"1"
    assert await store.has("a/b/one")
    assert not await store.has("a/b")
    assert list(await listed(store)) == ["a/b/one", "a/two", "ab"]
    assert list(await listed(store, "a")) == ["a/b/one", "a/two"]
    assert list(await listed(store.below("a"))) == ["b/one", "two"]
    assert await store.below("a").read("two") == b"2"
    with pytest.raises(Corrupt, match="lacks a/three"):
        await read_parts(store, "a/three")
    with pytest.raises(Corrupt, match="larger"):
        await store.read("ab", most=0)
    await store.remove("a")
    await store.remove("never/there")
    assert list(await listed(store)) == ["ab"]


async def test_a_mark_changes_with_the_content(store):
    await store.write("one", b"before")
    before = await listed(store)
    assert await listed(store) == before
    await store.write("one", b"behind")
    assert await listed(store) != before


async def test_a_large_file_appears_whole_or_not_at_all(store):
    large = bytes(range(256)) * ((PART_BYTES + 3000) // 256)
    await store.write_parts("large", parts_of(large))
    assert await read_parts(store, "large") == large
    with pytest.raises(KeyError):
        await store.write_parts("half", parts_of(large, fails=True))
    assert list(await listed(store)) == ["large"]


async def test_one_writer_at_a_time(store):
    async with store.locked():
        await store.write("one", b"1")
        with pytest.raises(Held, match="another process writes"):
            async with store.locked():
                pass
        async with store.below("apart").locked():
            pass
    async with writing(store):
        assert list(await listed(store)) == ["one"], "the lock is no file"


async def test_what_a_killed_writer_had_begun_is_removed_by_the_next_one(tmp_path):
    store = FolderStore(tmp_path)
    half, others = tmp_path / "record/.0-9.gz.new", tmp_path / "apart/.one.new"
    async with store.below("apart").locked():
        for path in (half, others):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"half")
        async with store.locked():
            assert not half.exists()
            assert others.exists(), "somebody has the lock there"
    async with FolderStore(tmp_path / "apart").locked():
        assert not others.exists()


async def test_who_waits_for_its_turn_gets_it(store):
    ended = []

    async def write():
        async with writing(store):
            assert len(ended) == 1

    async with store.locked():
        waiting = asyncio.create_task(write())
        await asyncio.sleep(0.3)
        ended.append("the first")
    await waiting


async def test_a_writer_that_was_killed_is_waited_for_and_one_that_lives_is_not_ended(
    bucket, monkeypatch
):
    monkeypatch.setattr(files, "LOCK_S", 9)
    async with bucket.locked():
        first = await bucket.read(".lock")
        async with asyncio.timeout(PATIENCE_S):
            while await bucket.read(".lock") == first:  # it renews its lock
                await asyncio.sleep(0.1)
        with pytest.raises(Held):
            async with bucket.locked():
                pass
    async with bucket.locked():
        await bucket.write(".lock", b'{"by":"another","until_ms":0}')  # which took it meanwhile
    assert await bucket.read(".lock"), "it is the other one's"
    now_ms = time.time_ns() // 1_000_000
    for until_ms in (now_ms + 3_600_000, now_ms - 1):
        await bucket.write(".lock", b'{"by":"killed","until_ms":%d}' % until_ms)
        with nullcontext() if until_ms < now_ms else pytest.raises(Held, match="if it was killed"):
            async with bucket.locked():
                pass


@pytest.mark.parametrize("why", ["another one has it", "it cannot be renewed"])
async def test_who_loses_the_lock_writes_no_more(bucket, monkeypatch, why):
    monkeypatch.setattr(files, "LOCK_S", 1.5)
    if why == "it cannot be renewed":
        monkeypatch.setattr(files.ObjectFiles, "_renewed", away)

    async def write():
        async with asyncio.timeout(PATIENCE_S), bucket.locked():
            if why == "another one has it":
                await bucket.write(".lock", b'{"by":"another","until_ms":0}')
            await asyncio.Event().wait()

    with pytest.raises(Held, match="another process writes"):
        await write()
    assert (await bucket.read(".lock") is None) == (why == "it cannot be renewed")
    with pytest.raises(TimeoutError):  # the block's own are its own
        async with bucket.locked():
            raise TimeoutError


async def away(*_):
    raise Unavailable("the store is away")


async def test_a_renewal_whose_answer_is_lost_does_not_lose_the_lock(bucket, monkeypatch):
    monkeypatch.setattr(files, "LOCK_S", 1.5)
    put, lost = files.ObjectFiles._lock, []

    async def loses_one_answer(self, mine, mode):
        tag = await put(self, mine, mode)
        if mode != "create" and not lost:
            lost.append(tag)
            raise Unavailable("the answer was lost")
        return tag

    monkeypatch.setattr(files.ObjectFiles, "_lock", loses_one_answer)
    async with bucket.locked():
        await asyncio.sleep(2)
    assert lost
    assert await bucket.read(".lock") is None


async def test_everything_is_copied_and_no_path_leads_out_of_a_folder(bucket, tmp_path):
    await bucket.write("tile/0/001", b"1")
    await bucket.write("checkpoint", b"2")
    target = FolderStore(tmp_path / "copy")
    await copy_files(bucket, target)
    assert [await target.read(path) for path in ("tile/0/001", "checkpoint")] == [b"1", b"2"]
    for path in ("../out", str(tmp_path / "out"), "a/../../out"):
        with pytest.raises(Corrupt, match="not the path"):
            await target.write(path, b"")
    assert not (tmp_path / "out").exists()


async def test_a_bucket_that_is_not_there_is_said(server, bucket):
    absent = Bucket(url="s3://absent/x", endpoint=server.address, region="eu-central-1")
    with pytest.raises(Misconfigured, match="does not exist"):
        await open_files(absent).write("one", b"1")
