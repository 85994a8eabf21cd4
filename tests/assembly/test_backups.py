"""Backups: incremental, whole or not at all, checked as readers judge, and without keys."""

import asyncio
import random
import shutil
from contextlib import aclosing

import pytest

from antiphon.assembly import backups, restoration
from antiphon.assembly.artifact_store import files_at
from antiphon.core.archive.checkpoint import CHECKPOINT
from antiphon.errors import AntiphonError, Corrupt, Held, LogReplaced, Misconfigured
from antiphon.runtime.backup import key_file
from antiphon.runtime.backup.backup_files import MANIFEST, MARKER, BackupFiles
from antiphon.runtime.backup.host_files import key_files
from antiphon.runtime.backup.key_file import KeyFile, unseal
from antiphon.runtime.file_store import LOCK, FolderStore, writing
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.archive.archives import open_archive
from tests.assembly.backed_up import BYTES, a_mesh_to_back_up
from tests.engines.objects.stores import BUCKET, s3_server
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.nats
SAMPLES = 40


def files_of(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {MARKER, LOCK}
    }


async def test_a_second_run_writes_only_what_is_new(tmp_path):
    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await at.keep(BYTES)
        await at.seal()
        first = await backups.back_up(at.home, target)
        before = files_of(target.folder)
        again = await backups.back_up(at.home, target)
        assert (again.records, again.blobs) == (0, 0)
        assert again.bytes == (target.folder / "manifest").stat().st_size
        await at.work(jobs=2)
        await at.keep(BYTES[1:])
        more = await backups.back_up(at.home, target)
        assert (first.is_first, more.is_first) == (True, False)
        assert (first.blobs, more.blobs, more.total_blobs) == (1, 1, 2)
        assert more.records >= 2
        after = files_of(target.folder)
        kept = [name for name in before if name.startswith(("log/", "blobs/"))]
        assert kept
        assert all(after[name] == before[name] for name in kept)
        log = at.owner.connection.session.log
        last = await log.last()
    report = await backups.check(target)
    assert report.upto <= last.seq
    assert (report.records, report.blobs) == (more.manifest.records, 2)
    assert report.messages == 2
    assert report.sealed >= first.manifest.upto - 1


async def test_a_backup_under_load_holds_a_prefix_of_the_log(tmp_path):
    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path) as at:
        is_over = asyncio.Event()

        async def load():
            while not is_over.is_set():
                await at.work(jobs=1)

        loading = asyncio.create_task(load())
        uptos = [(await backups.back_up(at.home, target)).manifest.upto for _ in range(4)]
        is_over.set()
        await loading
        manifest = await BackupFiles(target).require_manifest()
        session = at.owner.connection.session
        page = (await session.log.read(0, limit=manifest.records)).records
    stored = [one for entry in manifest.log for one in await BackupFiles(target).segment(entry)]
    assert uptos == sorted(uptos)
    assert [(one.seq, one.stamp_ns, one.subject, one.payload) for one in stored] == [
        (one.seq, one.stamp_ns, one.subject, one.payload) for one in page
    ]
    assert (await backups.check(target)).upto == uptos[-1]


async def test_a_backup_that_was_killed_leaves_the_former_one(tmp_path, monkeypatch):
    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        former = await backups.back_up(at.home, target)
        await at.work()
        await at.keep(BYTES)
        write = BackupFiles._write

        async def killed(self, path, data):
            if path == MANIFEST:
                raise KeyboardInterrupt
            await write(self, path, data)

        monkeypatch.setattr(BackupFiles, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            await backups.back_up(at.home, target)
        monkeypatch.undo()
        assert (await backups.check(target)).upto == former.manifest.upto
        await backups.back_up(at.home, target)
        report = await backups.check(target)
    assert report.upto > former.manifest.upto
    assert len([name for name in files_of(target.folder) if name.startswith("log/")]) == 2


async def test_no_byte_of_a_backup_may_change(tmp_path):
    target, copy = FolderStore(tmp_path / "backup"), tmp_path / "copy"
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await at.keep(BYTES[:700])
        await at.seal()
        await backups.back_up(at.home, target)
    chosen = random.Random(7)
    files = files_of(target.folder)
    places = [(name, at) for name, data in sorted(files.items()) for at in range(len(data))]
    ends = [(name, at) for name, data in files.items() for at in (0, len(data) - 1)]
    shutil.copytree(target.folder, copy)
    for name, at in [*ends, *chosen.sample(places, SAMPLES)]:
        changed = bytearray(files[name])
        changed[at] ^= 1 << chosen.randrange(8)
        (copy / name).write_bytes(changed)
        with pytest.raises(Corrupt):
            await backups.check(FolderStore(copy))
        (copy / name).write_bytes(files[name])
    for name in files:
        (copy / name).unlink()
        with pytest.raises(AntiphonError):
            await backups.check(FolderStore(copy))
        (copy / name).write_bytes(files[name])
    await backups.check(FolderStore(copy))


async def test_a_manifest_that_somebody_else_signed_is_refused(tmp_path):
    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await backups.back_up(at.home, target)
        (at.home.path / "keys" / "owner.key").replace(tmp_path / "owner.key")
        (at.home.path / "keys" / "client-1.key").rename(at.home.path / "keys" / "owner.key")
        await backups.back_up(at.home, target)
    with pytest.raises(Corrupt, match="owner"):
        await backups.check(target)


async def test_keys_are_in_their_own_file_and_never_in_the_backup(tmp_path, monkeypatch):
    target, keys = FolderStore(tmp_path / "backup"), tmp_path / "keys"
    monkeypatch.setattr(key_file, "MEMORY_BYTES", 8192)
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await backups.back_up(at.home, target)
        backups.store_keys(at.home, keys, "correct horse battery")
        secrets = unseal(keys.read_bytes(), "correct horse battery")
        home = at.home.path
        assert secrets.files["keys/owner.key"] == (home / "keys" / "owner.key").read_bytes()
        manifest = await BackupFiles(target).require_manifest()
        told = files_of(target.folder) | await BackupFiles(target).host_files(manifest.host)
    assert keys.stat().st_mode & 0o077 == 0
    for name, secret in secrets.files.items():
        if name.endswith((".key", "-key.pem", "accounts.json", "access.json")):
            assert not any(secret.strip() in data for data in told.values()), name


async def test_a_directory_belongs_to_one_mesh_and_one_history(tmp_path):
    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path / "one") as at:
        await at.work()
        async with target.locked():
            with pytest.raises(Held):
                await backups.back_up(at.home, target)
        await backups.back_up(at.home, target)
    async with a_mesh_to_back_up(tmp_path / "two") as at:
        with pytest.raises(Misconfigured, match="precious"):
            await backups.back_up(at.home, target)


async def test_a_log_that_lost_its_end_is_not_added_to_the_backup(tmp_path, monkeypatch):
    from antiphon.engines.nats.store.stream_copy import StreamCopy

    target = FolderStore(tmp_path / "backup")
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await backups.back_up(at.home, target)

        async def shorter(_self):
            return 2

        monkeypatch.setattr(StreamCopy, "last", shorter)
        with pytest.raises(LogReplaced, match="older copy"):
            await backups.back_up(at.home, target)


async def test_a_directory_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "home" / "log").mkdir(parents=True)
    (tmp_path / "home" / "log" / "mine.txt").write_text("mine")
    async with a_mesh_to_back_up(tmp_path) as at:
        with pytest.raises(Misconfigured, match="not empty"):
            await backups.back_up(at.home, FolderStore(tmp_path / "home"))
    assert files_of(tmp_path) | {"home/log/mine.txt": b"mine"} == files_of(tmp_path)


@pytest.fixture(params=["folder", "bucket"])
def places(request, tmp_path, monkeypatch):
    """Where a backup and an archive are."""
    if request.param == "folder":
        yield str(tmp_path / "backup"), str(tmp_path / "archive")
        return
    with s3_server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield f"s3://{BUCKET}/backup", f"s3://{BUCKET}/archive"


async def archived_anew(archive, before):
    """Wait until the archive has grown."""
    async with asyncio.timeout(PATIENCE_S):
        while await archive.read(CHECKPOINT) == before:
            await asyncio.sleep(0.02)


async def test_the_archive_is_copied_and_checked_and_comes_back(places, tmp_path, monkeypatch):
    target, archive = map(files_at, places)
    monkeypatch.setenv("ANTIPHON_ARCHIVE", places[1])
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await at.seal()
        await archived_anew(archive, None)
        await backups.back_up(at.home, target, archive=archive)
        first = await archive.read(CHECKPOINT)
        await at.work()
        await at.seal()
        await archived_anew(archive, first)
        # As far as a run came that was killed then.
        async with writing(archive):
            await BackupFiles(target).copy_archive(archive, {})
        assert (await backups.check(target)).archived > 0
        written = await backups.back_up(at.home, target, archive=archive)
        keys = KeyFile(mesh=written.manifest.mesh, made_ms=0, files=key_files(at.home.path))
        again = await backups.back_up(at.home, target, archive=archive)
        assert again.bytes < written.bytes, "what was copied stays"
    assert written.manifest.archive
    report = await backups.check(target)
    assert 0 < report.archived <= report.records
    home = StateDirectory(tmp_path / "again")
    await restoration.restore(target, home, keys)
    async with open_archive(home.path / "archive") as opened:
        assert (await opened.check()).records == report.archived
    async with aclosing(target.files("archive/tile/0")) as tiles:
        path, _ = await anext(tiles)
    changed = bytearray(await target.read(path))
    changed[5] ^= 4
    await target.write(path, bytes(changed))
    with pytest.raises(Corrupt):
        await backups.check(target)
