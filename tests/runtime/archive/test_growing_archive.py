"""Whoever reads an archive while it is written reads what was there when it began."""

import asyncio

import pytest

from antiphon.core.families.jobs.state import job_key
from antiphon.errors import Corrupt
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_eraser import erase_lane
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.file_store import FolderStore
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of
from tests.runtime.archive.test_archive_eraser import NOTE
from tests.runtime.meshes import KIND


async def opened(folder) -> ArchiveReader:
    return await ArchiveReader.open(FolderStore(folder))


@pytest.mark.parametrize("more", [3, 300], ids=["the file grows", "the file becomes full"])
async def test_a_file_that_grew_since_is_read_up_to_where_it_ended(tmp_path, more):
    async with an_archived_mesh(tmp_path) as archived:
        (job,) = await archived.work(1)
        await archived.archive()
        reader = await opened(tmp_path)
        before = reader.size
        for part in (more // 3, more - more // 3):
            await archived.litter(part, b"more %d" % part)
            await archived.archive()
        assert await assembled(reader, job_key(KIND, job)) is not None
        assert (await check_archive(reader)).records == before < (await opened(tmp_path)).size


async def test_what_was_erased_since_is_not_shown_by_one_who_opened_it_before(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        secret, other = await archived.work(1, 2)
        await archived.archive()
        reader = await opened(tmp_path)
        await archived.litter(3)
        await archived.archive()
        erased = await erase_lane(await opened(tmp_path), job_key(KIND, secret), NOTE)
        assert (await check_archive(reader)).erased == erased > 0
        assert await assembled(reader, job_key(KIND, other)) is not None


async def test_a_file_that_is_lost_is_missed_all_the_same(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.work(1)
        await archived.archive()
        (name,) = [path for path in files_of(tmp_path) if path.startswith("record/")]
        (tmp_path / name).unlink()
        with pytest.raises(Corrupt, match=f"lacks {name}"):
            await check_archive(await opened(tmp_path))


async def test_readers_beside_a_writer_always_find_a_whole_archive(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        (job,) = await archived.work(1)
        await archived.archive()
        sizes, is_over = set(), False

        async def read():
            while not is_over:
                reader = await opened(tmp_path)
                sizes.add((await check_archive(reader)).records)
                assert await assembled(reader, job_key(KIND, job)) is not None

        async with asyncio.TaskGroup() as readers:
            for _ in range(2):
                readers.create_task(read())
            for at in range(8):
                await archived.litter(36, b"round %d" % at)
                await archived.archive()
            is_over = True
        assert len(sizes) > 2
