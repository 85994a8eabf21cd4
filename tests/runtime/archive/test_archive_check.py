"""An archive is checked whole: every changed byte of every file is noticed."""

import random
import shutil

import pytest

from antiphon.errors import AntiphonError
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.file_store import FolderStore
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """One archive for all: a full tile, a partial one, and jobs in both."""
    import asyncio

    folder = tmp_path_factory.mktemp("archive")

    async def make() -> str:
        async with an_archived_mesh(folder) as archived:
            await archived.work(1)
            await archived.litter(260)
            await archived.work(2)
            await archived.archive()
            return archived.mesh.owner.did

    return folder, asyncio.run(make())


async def checked(folder):
    return await check_archive(await ArchiveReader.open(FolderStore(folder)))


async def test_a_whole_archive_says_who_sealed_what(archive):
    folder, owner = archive
    report = await checked(folder)
    assert (report.owner, report.coordinator) == (owner, owner)
    assert report.records == report.upto > 256
    assert report.erased == 0


async def test_every_changed_byte_is_noticed(archive, tmp_path):
    folder, _ = archive
    chance = random.Random(1)
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    for path, good in files_of(folder).items():
        if path == ".lock":
            continue
        for _ in range(4):
            at = chance.randrange(len(good))
            bent = bytearray(good)
            bent[at] ^= 1 << chance.randrange(8)
            (bad / path).write_bytes(bent)
            with pytest.raises(AntiphonError):
                await checked(bad)
        for other in (good[:-1], good + b"\0", b""):
            (bad / path).write_bytes(other)
            with pytest.raises(AntiphonError):
                await checked(bad)
        (bad / path).unlink()
        with pytest.raises(AntiphonError):
            await checked(bad)
        (bad / path).write_bytes(good)
    await checked(bad)


async def test_a_checkpoint_that_another_key_signed_is_refused(archive, tmp_path):
    from antiphon.core.archive import checkpoint
    from antiphon.runtime.identity.key_files import SeedKeyring

    folder, _ = archive
    bad = tmp_path / "bad"
    shutil.copytree(folder, bad)
    said, _ = checkpoint.read((bad / "checkpoint").read_bytes())
    stranger = SeedKeyring(bytes(32))
    signed = checkpoint.signed(said, stranger.did, stranger.sign_checkpoint(said))
    (bad / "checkpoint").write_bytes(signed)
    with pytest.raises(AntiphonError, match="not signed by the coordinator"):
        await checked(bad)
