"""Artifacts: content in and out, checked both ways, and never anywhere but where it belongs."""

import hashlib
import os
import stat

import msgspec
import pytest
from blake3 import blake3

from antiphon.core.proof.output import Output
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import Corrupt, Malformed, Misconfigured, Rejected
from antiphon.runtime.artifacts.blob_cache import BlobCache
from antiphon.runtime.artifacts.safe_file import parts_of
from antiphon.runtime.artifacts.store import INLINE_BYTES, Artifacts
from antiphon.runtime.identity.host_clock import SystemClock
from tests.runtime.meshes import a_mesh, on_both_engines_in_real_time

BIG = bytes(range(256)) * 12_000


def digest_of(data):
    return f"blake3:{blake3(data).hexdigest()}"


def entries(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()} - {"lock"}


def leftovers(folder):
    return [path for path in folder.rglob("*") if path.name.endswith(".part")]


class Stored:
    """Artifacts over an engine, with a folder to play in."""

    def __init__(self, blobs, folder, *, max_bytes=1 << 30):
        self.blobs = blobs
        self.folder = folder
        self.cache = BlobCache(folder / "cache", max_bytes=max_bytes)
        self.artifacts = Artifacts(blobs, self.cache)

    def file(self, data, name="source"):
        path = self.folder / name
        path.write_bytes(data)
        return path

    async def keep(self, data, name="out.bin", **options):
        return await self.artifacts.keep(self.file(data), name, **options)


def memory_blobs():
    return MemoryEngine(MemoryServer(SystemClock()), "a" * 16).blobs


@pytest.fixture
def stored(tmp_path):
    return Stored(memory_blobs(), tmp_path)


@on_both_engines_in_real_time
async def test_what_was_kept_comes_back_with_both_digests(engine, tmp_path):
    async with a_mesh(engine) as mesh:
        one, two = await mesh.connection(), await mesh.connection()
        for data in (b"", b"\xff", BIG):
            made = await Stored(one.engine.blobs, tmp_path).keep(data, media_type="image/png")
            assert made.hash == digest_of(data)
            assert made.sha256 == hashlib.sha256(data).hexdigest()
            assert (made.size, made.type) == (len(data), "image/png")
            target = tmp_path / "target"
            seen = {}
            await Artifacts(two.engine.blobs).fetch(made, target, on_progress=seen.__setitem__)
            assert target.read_bytes() == data
            assert stat.S_IMODE(target.stat().st_mode) == 0o600
            assert not data or seen[len(data)] == len(data)


async def test_small_text_travels_in_the_record_and_is_stored_nowhere(stored):
    made = await stored.keep("grüße".encode())
    assert made.text == "grüße"
    assert not await stored.blobs.has(made.hash)
    await stored.artifacts.fetch(made, stored.folder / "t")
    assert (stored.folder / "t").read_text() == "grüße"


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"x" * (INLINE_BYTES + 1)], ids=["no text", "too long"]
)
async def test_what_is_no_small_text_is_stored(stored, data):
    made = await stored.keep(data)
    assert made.text is None
    assert await stored.blobs.has(made.hash)


async def test_a_caller_may_ask_for_nothing_inline(stored):
    made = await stored.keep(b"text", inline_bytes=0)
    assert made.text is None
    assert await stored.blobs.has(made.hash)


@pytest.mark.parametrize(
    "claim",
    [{"size": 3}, {"sha256": "0" * 64}],
    ids=["size", "sha256"],
)
async def test_content_that_differs_from_its_record_gets_no_name(stored, claim):
    made = await stored.keep(BIG)
    wrong = Output(name="x", stored=msgspec.structs.replace(made.stored, **claim))
    target = stored.folder / "target"
    with pytest.raises(Corrupt):
        await stored.artifacts.fetch(wrong, target)
    assert not target.exists()
    assert not leftovers(stored.folder)


async def test_what_is_not_stored_is_said_to_be(stored):
    with pytest.raises(Rejected) as caught:
        await stored.artifacts.fetch(digest_of(b"nobody"), stored.folder / "t")
    assert caught.value.reason == "no_blob"
    assert not leftovers(stored.folder)


async def test_a_digest_is_never_a_path(stored):
    with pytest.raises(Malformed):
        await stored.artifacts.fetch("blake3:../../keys/owner.key", stored.folder / "t")


async def test_only_plain_files_are_kept(stored):
    os.mkfifo(stored.folder / "pipe")
    for odd in (stored.folder, stored.folder / "pipe", stored.folder / "absent"):
        with pytest.raises(Misconfigured):
            await stored.artifacts.keep(odd, "x")


async def test_a_second_fetch_needs_no_engine(stored):
    made = await stored.keep(BIG)
    await stored.artifacts.fetch(made, stored.folder / "one")
    await stored.blobs.remove(made.hash)
    await stored.artifacts.fetch(made.hash, stored.folder / "two")
    assert (stored.folder / "two").read_bytes() == BIG


async def test_a_damaged_cache_entry_is_fetched_again(stored):
    made = await stored.keep(BIG)
    await stored.artifacts.fetch(made, stored.folder / "one")
    (entry,) = (stored.folder / "cache").rglob(made.hash.removeprefix("blake3:"))
    entry.write_bytes(b"damaged")
    await stored.artifacts.fetch(made, stored.folder / "two")
    assert (stored.folder / "two").read_bytes() == BIG
    assert entry.read_bytes() == BIG


async def test_the_cache_keeps_what_was_used_last(tmp_path):
    store = Stored(memory_blobs(), tmp_path, max_bytes=2500)
    contents = [bytes([number]) * 1000 + b"\xff" for number in range(3)]
    first, second, third = [await store.keep(data) for data in contents]
    for at, made in enumerate([first, second, first]):
        await store.artifacts.fetch(made, tmp_path / "t")
        os.utime(next((tmp_path / "cache").rglob(made.hash.removeprefix("blake3:"))), (at, at))
    await store.artifacts.fetch(third, tmp_path / "t")
    names = {made.hash.removeprefix("blake3:") for made in (first, third)}
    assert entries(tmp_path / "cache") == names


async def test_what_is_too_large_for_the_cache_goes_past_it(tmp_path):
    store = Stored(memory_blobs(), tmp_path, max_bytes=1000)
    made = await store.keep(BIG)
    await store.artifacts.fetch(made, tmp_path / "one")
    await store.artifacts.fetch(made.hash, tmp_path / "two")
    assert (tmp_path / "two").read_bytes() == BIG
    assert not entries(tmp_path / "cache")


# --- names ------------------------------------------------------------------------------------

BAD_NAMES = [
    "/etc/passwd",
    "../out",
    "a/../../out",
    "a//b",
    "a/",
    ".",
    "..",
    "",
    "a\x00b",
    "a\nb",
    "a\x1b[2Jb",
    "/".join("a" * 40),
    "ä" * 200,
    "\ud800",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(Rejected) as caught:
        parts_of(name)
    assert caught.value.reason == "name"


async def test_an_output_lands_below_the_directory_under_its_name(stored):
    made = await stored.keep(b"text", "logs/run.txt")
    path = await stored.artifacts.fetch_below(made, stored.folder / "into")
    assert path == stored.folder / "into" / "logs" / "run.txt"
    assert path.read_bytes() == b"text"


async def test_no_link_is_followed_out_of_the_directory(stored):
    outside, into = stored.folder / "outside", stored.folder / "into"
    outside.mkdir()
    into.mkdir()
    (outside / "precious").write_bytes(b"precious")
    (into / "logs").symlink_to(outside)
    (into / "direct").symlink_to(outside / "precious")
    made = await stored.keep(b"evil", "logs/precious")
    with pytest.raises(Rejected):
        await stored.artifacts.fetch_below(made, into)
    made = await stored.keep(b"evil", "direct")
    await stored.artifacts.fetch_below(made, into)
    assert (outside / "precious").read_bytes() == b"precious"
    assert not (into / "direct").is_symlink()
    assert not leftovers(stored.folder)


async def test_a_file_in_the_way_is_replaced_and_a_directory_is_not(stored):
    into = stored.folder / "into"
    (into / "taken").mkdir(parents=True)
    (into / "old").write_bytes(b"old")
    await stored.artifacts.fetch_below(await stored.keep(b"new", "old"), into)
    assert (into / "old").read_bytes() == b"new"
    with pytest.raises(Misconfigured):
        await stored.artifacts.fetch_below(await stored.keep(b"new", "taken"), into)
    assert not leftovers(stored.folder)
