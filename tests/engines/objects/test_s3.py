"""The S3 protocol itself: a server of another project on loopback, signatures and all."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import boto3
import pytest

from antiphon.assembly.artifact_store import artifacts_of, blobs_of
from antiphon.assembly.memory_mesh import MemoryMesh
from antiphon.assembly.mesh_connection import place
from antiphon.engines.nats import NatsEngine
from antiphon.engines.objects import Bucket, open_bucket
from antiphon.engines.objects import blobs as module
from antiphon.engines.objects.connection import _open
from antiphon.errors import AntiphonError, EngineDenied, Misconfigured, Unavailable
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.author import NoMark
from antiphon.testing import engine_suite as suite
from antiphon.testing.engine_suite.artifacts import chunks_of, digest_of
from tests.engines.objects.stores import BUCKET, PIECES, BlobHarness, S3Server, s3_server
from tests.local_server import shared_server

pytestmark = pytest.mark.processes

MESH = "a" * 16
LARGE = bytes(range(256)) * (20 * 1024 * 1024 // 256)
MARKED = re.compile("b{16}|c{16}")
"""Of the meshes of those tests that look into the bucket."""
WRONG = "wrong+secret/that+nobody+shows"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        TestOnS3.address = running.address
        yield running


@contextmanager
def fresh() -> Iterator[None]:
    """Credentials are looked for when a bucket is opened first."""
    _open.cache_clear()
    try:
        yield
    finally:
        _open.cache_clear()


@pytest.fixture(autouse=True)
def credentials(monkeypatch, tmp_path, server) -> Iterator[None]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with fresh():
        yield


def bucket_at(address: str, url: str = f"s3://{BUCKET}/some/where") -> Bucket:
    return Bucket(url=url, endpoint=address, region="eu-central-1")


def names(server: S3Server, call: str = "list_objects_v2", part: str = "Contents") -> list[str]:
    """What the server has in the bucket, or has half of, asked without our code."""
    client = boto3.client(
        "s3",
        endpoint_url=server.address,
        aws_access_key_id=server.key_id,
        aws_secret_access_key=server.secret,
        region_name="eu-central-1",
    )
    found = getattr(client, call)(Bucket=BUCKET).get(part, [])
    client.close()
    return [each["Key"] for each in found if MARKED.search(each["Key"])]


@pytest.mark.usefixtures("server")
class TestOnS3(suite.BlobSuite):
    address = ""

    @asynccontextmanager
    async def harness(self, *, own_server: bool) -> AsyncIterator[BlobHarness]:
        bucket = bucket_at(self.address)
        yield BlobHarness(lambda mesh: open_bucket(bucket, mesh))


async def test_a_large_blob_goes_up_in_parts_and_shows_only_when_it_is_whole(server):
    blobs = open_bucket(bucket_at(server.address), "b" * 16)
    digest = digest_of(LARGE)
    seen: list[bool] = []

    async def watched():
        async for chunk in chunks_of(LARGE, PIECES):
            yield chunk
        await asyncio.sleep(0.2)
        seen.append(await blobs.has(digest))

    await blobs.put(watched(), digest=digest)
    assert seen == [False]
    assert names(server) == [f"some/where/{'b' * 16}/blake3/{digest[7:]}"]
    async with blobs.get(digest) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == LARGE
    await blobs.remove(digest)
    assert names(server) == []


async def test_a_cancelled_upload_gives_its_parts_back(server):
    blobs = open_bucket(bucket_at(server.address), "c" * 16)
    has_given = asyncio.Event()

    async def stuck():
        yield LARGE[: 2 * module.PART_BYTES + 5]
        has_given.set()
        await asyncio.Event().wait()

    putting = asyncio.create_task(blobs.put(stuck(), digest=digest_of(LARGE)))
    await has_given.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert not await blobs.has(digest_of(LARGE))
    assert names(server, "list_multipart_uploads", "Uploads") == [], (
        "parts that nobody would ever see"
    )


async def refusal_of(blobs, server: S3Server) -> AntiphonError:
    with pytest.raises(AntiphonError) as refused:
        await blobs.put(chunks_of(b"blob", 2), digest=digest_of(b"blob"))
    problem = refused.value
    shown = f"{problem} {problem.hint} {problem!r} {blobs!r}"
    for hidden in (server.secret, server.key_id, WRONG):
        assert hidden not in shown
    assert problem.__cause__ is None
    assert problem.__context__ is None, "the store's own words quote keys and signatures"
    return problem


async def test_a_wrong_key_is_refused_and_nothing_of_it_is_shown(server, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WRONG)
    problem = await refusal_of(open_bucket(bucket_at(server.address), MESH), server)
    assert isinstance(problem, EngineDenied)
    assert "403" in problem.message
    assert "AWS_ACCESS_KEY_ID" in problem.hint


async def test_a_bucket_that_does_not_exist_is_named(server):
    problem = await refusal_of(open_bucket(bucket_at(server.address, "s3://nowhere"), MESH), server)
    assert isinstance(problem, Misconfigured)
    assert "s3://nowhere" in problem.message


async def test_a_store_that_is_away_is_unavailable(server, monkeypatch):
    monkeypatch.setattr("antiphon.engines.objects.connection.MAX_RETRIES", 1)
    problem = await refusal_of(open_bucket(bucket_at("http://127.0.0.1:9"), MESH), server)
    assert isinstance(problem, Unavailable)
    assert not isinstance(problem, EngineDenied)


# --- credentials ------------------------------------------------------------------------------


def profile(path: Path, name: str, server: S3Server) -> None:
    keys = f"aws_access_key_id = {server.key_id}\naws_secret_access_key = {server.secret}\n"
    path.write_text(f"[{name}]\n{keys}")


@pytest.mark.parametrize("name", ["default", "desk"])
async def test_keys_may_stand_in_a_credentials_file(server, monkeypatch, tmp_path, name):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    if name != "default":
        monkeypatch.setenv("AWS_PROFILE", name)
    profile(tmp_path / "credentials", name, server)
    blobs = open_bucket(bucket_at(server.address), "d" * 16)
    await blobs.put(chunks_of(b"blob", 2), digest=digest_of(b"blob"))
    assert await blobs.has(digest_of(b"blob"))


@pytest.mark.parametrize("text", [None, "", "[other]\n", "[desk]\nregion = x\n", f"{WRONG}\n"])
def test_a_profile_without_keys_is_named_and_not_quoted(monkeypatch, tmp_path, text):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "desk")
    if text is not None:
        (tmp_path / "credentials").write_text(text)
    with pytest.raises(Misconfigured) as refused:
        open_bucket(bucket_at("http://127.0.0.1:9"), MESH)
    assert "credentials" in refused.value.message
    assert WRONG not in f"{refused.value} {refused.value.hint}"
    assert refused.value.__context__ is None


# --- on a mesh --------------------------------------------------------------------------------


@pytest.mark.nats
async def test_a_mesh_that_is_told_of_a_bucket_keeps_artifacts_there(server, monkeypatch, tmp_path):
    monkeypatch.setenv("ANTIPHON_BLOBS", f"s3://{BUCKET}/told")
    monkeypatch.setenv("ANTIPHON_S3_ENDPOINT", server.address)
    monkeypatch.setenv("ANTIPHON_S3_REGION", "eu-central-1")
    nats, mesh = shared_server(), "b" * 16
    engine = await NatsEngine.connect(
        f"nats://127.0.0.1:{nats.port}", mesh, login=nats.login, create=True
    )
    try:
        connection = place(engine, mesh, SeedKeyring(bytes(32)), "one", NoMark())
        (tmp_path / "file").write_bytes(b"\xff" * 50_000)
        before = await Artifacts(engine.blobs).keep(tmp_path / "file", "before")
        (tmp_path / "file").write_bytes(b"\xfe" * 50_000)
        artifacts = artifacts_of(connection, None)
        kept = await artifacts.keep(tmp_path / "file", "kept")
        assert names(server) == [f"told/{mesh}/blake3/{kept.hash[7:]}"]
        assert not await engine.blobs.has(kept.hash)
        for each in (before, kept):
            await artifacts.fetch(each, tmp_path / each.name)
        for each in (before, kept):
            await blobs_of(connection).remove(each.hash)
        assert names(server) == []
        assert not await engine.blobs.has(before.hash)
        monkeypatch.delenv("ANTIPHON_BLOBS")
        assert blobs_of(connection) is engine.blobs
    finally:
        await engine.close()


async def test_a_mesh_inside_one_process_keeps_its_own(monkeypatch):
    monkeypatch.setenv("ANTIPHON_BLOBS", f"s3://{BUCKET}/told")
    async with MemoryMesh().connection("one") as connection:
        assert blobs_of(connection) is connection.engine.blobs
