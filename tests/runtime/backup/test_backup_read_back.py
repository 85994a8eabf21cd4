"""What a backup has can be restored: it is read back before the manifest says that it is there."""

from contextlib import asynccontextmanager

import pytest
from blake3 import blake3
from msgspec.structs import replace

from antiphon.assembly import backups
from antiphon.errors import Corrupt, Rejected
from antiphon.ports import StoredBlob, StoredMessage
from antiphon.runtime.backup import backup_files, backup_writer, host_files, key_file, manifest
from antiphon.runtime.backup.backup_files import MANIFEST, BackupFiles
from antiphon.runtime.backup.backup_writer import Source, write_backup
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory
from tests.runtime.archive.test_archive_read_back import DamagingStore

OWNER = SeedKeyring(bytes(32))
REVOKED = "server/revoked.json"


def message(seq, payload=b"x"):
    return StoredMessage(seq, seq * 1_000_000, f"ap.m.a.{seq}", b"", payload)


class Stream:
    """A stream of the engine, in memory."""

    def __init__(self, messages):
        self.messages = messages

    async def last(self):
        return self.messages[-1].seq if self.messages else 0

    async def read(self, after, upto):
        return [one for one in self.messages if after < one.seq <= upto][:100]


class NoBlobs:
    async def everything(self):
        for one in ():
            yield one


class OneBlob:
    """A stored value, so that the list of them is another one."""

    async def everything(self):
        yield StoredBlob(f"blake3:{blake3(b'value').hexdigest()}", 5, "")

    @asynccontextmanager
    async def get(self, _digest):
        async def chunks():
            yield b"value"

        yield chunks()


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home/server").mkdir(parents=True)
    (tmp_path / "home" / REVOKED).write_bytes(b"{}")
    return tmp_path / "home"


def source(home, records=3, messages=()):
    return Source(
        mesh="m",
        name="shop",
        engine="nats://here",
        log=Stream([message(seq) for seq in range(1, records + 1)]),
        messages=Stream(list(messages)),
        blobs=NoBlobs(),
        home=home,
    )


def a_backup(store):
    return lambda given: write_backup(given, BackupFiles(store), OWNER, now_ms=1)


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("spoiled", ["log/", "messages/", "lists/", "host/", MANIFEST])
async def test_a_backup_that_cannot_be_read_back_leaves_the_former_one(tmp_path, home, spoiled):
    folder = tmp_path / "backup"
    await a_backup(FolderStore(folder))(source(home))
    before = files_of(folder)
    (home / REVOKED).write_bytes(b"{ }")
    given = source(home, records=5, messages=[message(7)])
    given = replace(given, blobs=OneBlob())
    with pytest.raises(Rejected, match="backup") as refused:
        await a_backup(DamagingStore(folder, spoiled))(given)
    assert refused.value.reason == "unreadable"
    assert before.items() <= files_of(folder).items()
    former = await BackupFiles(FolderStore(folder)).require_manifest()
    assert former.upto == 3
    assert (await a_backup(FolderStore(folder))(given)).manifest.upto == 5


@pytest.fixture
def lowered(monkeypatch):
    """A reader's limit, below what is made."""

    def lower(where, name, limit):
        monkeypatch.setattr(where, name, limit)

    return lower


async def test_a_segment_that_is_larger_than_restore_takes_is_not_in_a_backup(
    tmp_path, home, lowered
):
    lowered(backup_files, "MAX_SEGMENT_BYTES", 50)
    with pytest.raises(Rejected, match=r"log/0{11}1-0{11}3.seg"):
        await a_backup(FolderStore(tmp_path / "backup"))(source(home))
    assert not (tmp_path / "backup" / MANIFEST).exists()


async def test_a_manifest_that_is_larger_than_restore_takes_is_not_written(tmp_path, home, lowered):
    lowered(backup_files, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(Rejected, match="manifest"):
        await a_backup(FolderStore(tmp_path / "backup"))(source(home))
    assert not (tmp_path / "backup" / MANIFEST).exists()


async def test_a_file_of_the_host_that_restore_refuses_is_not_in_a_backup(tmp_path, home, lowered):
    lowered(host_files, "MAX_FILE_BYTES", 1)
    with pytest.raises(Rejected, match=REVOKED):
        await a_backup(FolderStore(tmp_path / "backup"))(source(home))
    assert not (tmp_path / "backup" / MANIFEST).exists()


async def test_a_check_refuses_a_file_of_the_host_that_restore_would(tmp_path, home, lowered):
    await a_backup(FolderStore(tmp_path / "backup"))(source(home))
    backup = BackupFiles(FolderStore(tmp_path / "backup"))
    entry = (await backup.require_manifest()).host
    assert await backup.host_files(entry) == {REVOKED: b"{}"}
    lowered(host_files, "MAX_FILE_BYTES", 1)
    with pytest.raises(Corrupt, match="larger than any file of a host"):
        await backup.host_files(entry)


async def test_messages_of_one_place_are_split_before_they_are_too_many_bytes(
    tmp_path, home, monkeypatch
):
    monkeypatch.setattr(backup_writer, "PLACE_BYTES", 40)
    many = [message(seq, b"%d" % seq * 20) for seq in (1, 2, 3, 4, 5_000, 5_001)]
    backup = BackupFiles(FolderStore(tmp_path / "backup"))
    await write_backup(source(home, messages=many), backup, OWNER, now_ms=1)
    made = await backup.require_manifest()
    assert len(made.messages) > 2
    stored = [one for entry in made.messages for one in await backup.segment(entry)]
    assert stored == many
    again = await write_backup(source(home, messages=many), backup, OWNER, now_ms=2)
    assert again.manifest.messages == made.messages, "nothing was written again"


def hosted(home):
    place = StateDirectory(home)
    place.make()
    place.key("owner", _Chance()).release()
    place.write_mesh(MeshFile(mesh="m", name="shop", engine="nats://here", ca=""))
    return place


class _Chance:
    def token(self, size):
        return bytes(range(size))

    def random(self):
        return 0.5


@pytest.mark.parametrize("fault", ["bytes", "limit"])
def test_a_file_of_keys_that_could_not_be_opened_takes_no_other_ones_place(
    tmp_path, home, monkeypatch, fault
):
    place, file = hosted(home), tmp_path / "keys"
    monkeypatch.setattr(key_file, "OPS", 1)
    monkeypatch.setattr(key_file, "MEMORY_BYTES", 8192)
    backups.store_keys(place, file, "correct horse")
    good, sealed = file.read_bytes(), backups.seal
    if fault == "limit":
        monkeypatch.setattr(host_files, "MAX_FILE_BYTES", 1)
    else:
        monkeypatch.setattr(
            backups, "seal", lambda *given: sealed(*given).replace(b'"box":"', b'"box":"A')
        )
    with pytest.raises(Rejected) as refused:
        backups.store_keys(place, file, "correct horse")
    assert refused.value.reason == "unreadable"
    assert file.read_bytes() == good


def test_a_manifest_is_read_back_before_the_former_one_is_replaced(monkeypatch):
    """`write_backup` compares what is signed; a signature that is wrong is found there, too."""
    wrong = SeedKeyring(b"1" * 32)
    wrong.did = OWNER.did
    made = manifest.Manifest(
        form=1, mesh="m", name="", engine="", made_ms=1, by=OWNER.did, upto=0, last_digest="",
        last_ms=0, log=(), messages=(), blobs=manifest.FileEntry(path="a", size=0, digest=""),
        host=manifest.FileEntry(path="a", size=0, digest=""),
    )  # fmt: skip
    with pytest.raises(Rejected, match="manifest"):
        manifest.write(made, wrong)
    assert manifest.read(manifest.write(made, OWNER)) == made
