"""An archive follows the orders to forget that are on the log, whenever they come."""

import shutil

import pytest

from antiphon.core.families.jobs.state import job_key
from antiphon.errors import Rejected
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.file_store import FolderStore
from tests.archive_verifier import verify
from tests.runtime.archive.archived_meshes import an_archived_mesh
from tests.runtime.archive.test_archive_writer import FailingStore, Killed
from tests.runtime.meshes import KIND, call


async def erased(folder) -> int:
    report = await check_archive(await ArchiveReader.open(FolderStore(folder)))
    verify(folder, (folder / "vkey").read_text())
    return report.erased


async def test_what_is_in_the_archive_is_erased_and_says_by_whom_and_when(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        secret, _ = await archived.work(1, 2)
        await archived.archive()
        order = await forget(archived.node.session, KIND, secret)
        await archived.archive()
        assert await erased(tmp_path) == len(archived.node.replica.lane_records(lane(secret)))
        reader = await ArchiveReader.open(FolderStore(tmp_path))
        with pytest.raises(Rejected, match=f"were erased by {order.by} on 20") as caught:
            await assembled(reader, lane(secret))
        assert caught.value.reason == "erased"


def lane(job):
    return job_key(KIND, job)


async def test_what_is_not_in_the_archive_yet_is_never_written_there(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        secret, _ = await archived.work(1, 2)
        await forget(archived.node.session, KIND, secret)
        await archived.archive()
        many = len(archived.node.replica.lane_records(lane(secret)))
        assert await erased(tmp_path) == many
        await archived.litter(3)
        await archived.archive()
        assert await erased(tmp_path) == many


async def test_what_a_killed_writer_left_is_written_again_without_what_was_forgotten(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        (secret,) = await archived.work(1)
        await archived.litter(256)
        await archived.seal()
        archived.writer.store = FailingStore(tmp_path, 3)  # a full tile's files, and no checkpoint
        with pytest.raises(Killed):
            await archived.writer.look()
        assert (tmp_path / "tile/0/000").exists()
        await forget(archived.node.session, KIND, secret)
        archived.writer = archived.new_writer()
        await archived.archive()
        assert await erased(tmp_path) == len(archived.node.replica.lane_records(lane(secret)))


async def test_a_job_that_has_not_ended_is_erased_when_it_has(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        session = archived.node.session
        late = await call(session, 1, kind="nobody.runs")
        await archived.archive()
        await forget(session, "nobody.runs", late.id)
        await archived.archive()
        assert await erased(tmp_path) == 0
        await submission.cancel(session, "nobody.runs", late.id, reason="done with")
        await archived.archive()
        assert await erased(tmp_path) == 2


async def test_an_older_copy_that_is_put_back_loses_it_again(tmp_path):
    folder, older = tmp_path / "archive", tmp_path / "older"
    async with an_archived_mesh(folder) as archived:
        (secret,) = await archived.work(1)
        await archived.archive()
        shutil.copytree(folder, older)
        await forget(archived.node.session, KIND, secret)
        await archived.archive()
        many = await erased(folder)
        shutil.rmtree(folder)
        shutil.copytree(older, folder)
        assert await erased(folder) == 0
        archived.writer = archived.new_writer()
        assert await archived.writer.look()
        assert await erased(folder) == many > 2
