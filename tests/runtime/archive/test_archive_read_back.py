"""What is archived is read back before anybody relies on it; people are told if it cannot be."""

import asyncio

import pytest

from antiphon.core.archive import checkpoint as checkpoints
from antiphon.core.archive import record_files
from antiphon.core.families.jobs.state import job_key
from antiphon.core.record.ids import digest
from antiphon.errors import AntiphonError, Unavailable, Unreadable
from antiphon.interfaces.cli.checks.log import attention_findings
from antiphon.runtime.archive import archive_writer as archive_writer_module
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_eraser import erase_lane
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.file_store import FolderStore
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of
from tests.runtime.archive.test_archive_eraser import NOTE, opened
from tests.runtime.archive.test_archive_writer import FailingStore, Killed, proved
from tests.runtime.meshes import KIND, eventually

FILES = ("record/", "tile/entries/", "tile/0/", "tile/1/", "seal", "vkey", "checkpoint")


class DamagingStore(FolderStore):
    """Keeps other bytes than it was given, of the first file whose path begins so."""

    def __init__(self, folder, beginning):
        super().__init__(folder)
        self.beginning = beginning

    async def write_parts(self, path, parts):
        async def flipped():
            data = b"".join([part async for part in parts])
            at = len(data) // 2
            yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

        is_spoiled = bool(self.beginning) and path.startswith(self.beginning)
        if is_spoiled:
            self.beginning = ""
        await super().write_parts(path, flipped() if is_spoiled else parts)


class NarrowStore(FolderStore):
    """Its readers take smaller files than its writers make."""

    async def read(self, path, *, most=2_000):
        return await super().read(path, most=most)


class AwayStore(FolderStore):
    """Takes what it is given, and then cannot be reached."""

    def parts(self, path):
        raise Unavailable(f"nobody answers for {path}")


def large_tree(archived):
    """So large that there are tiles above the lowest."""
    return archived.litter(300)


@pytest.mark.parametrize("spoiled", FILES)
async def test_nothing_is_announced_that_cannot_be_read_back(tmp_path, spoiled):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.archive()
        before = (tmp_path / "checkpoint").read_bytes()
        size = archived.writer.size
        await large_tree(archived)
        await archived.seal()
        writer = archived.writer
        good, writer.store = writer.store, DamagingStore(tmp_path, spoiled)
        with pytest.raises(Unreadable):
            await writer.look()
        assert (tmp_path / "checkpoint").read_bytes() == before
        assert writer.size == size, "what purges rely on"
        writer.store = good
        assert await writer.look(), "what was damaged is written again"
        assert writer.size > size
        await check_archive(await opened(tmp_path))


async def test_people_are_told_until_the_archive_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_writer_module, "AFTER_PROBLEM_S", 0.01)
    async with an_archived_mesh(tmp_path) as archived:
        await large_tree(archived)
        await archived.seal()
        writer, table = archived.writer, archived.node.replica.attention
        good, writer.store = writer.store, NarrowStore(tmp_path)
        running = asyncio.ensure_future(writer.run())
        archived.mesh.stack.callback(running.cancel)
        (one,) = await eventually(lambda: table.newest(limit=9))
        assert (one.service, one.item) == ("archive", "")
        assert "would be refused by its readers" in one.reason
        assert "nothing is purged" in one.reason
        (finding,) = attention_findings([one])
        assert one.reason in finding.sentence
        writer.store = good
        await eventually(lambda: not table.newest(limit=9))
        assert writer.size


async def test_a_file_that_readers_find_too_large_is_not_announced(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await large_tree(archived)
        await archived.seal()
        archived.writer.store = NarrowStore(tmp_path)
        with pytest.raises(Unreadable, match="larger than it can be"):
            await archived.writer.look()
        assert not (tmp_path / "checkpoint").exists()
        assert not archived.writer.size


async def test_a_store_that_is_away_is_no_fault_of_the_archive(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.work(1)
        await archived.seal()
        good, archived.writer.store = archived.writer.store, AwayStore(tmp_path)
        with pytest.raises(Unavailable):
            await archived.writer.look()
        archived.writer.store = good
        assert await archived.writer.look()


async def test_what_a_killed_writer_left_is_read_back_or_written_again(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await large_tree(archived)
        await archived.seal()
        killed = archived.new_writer()
        killed.store = FailingStore(tmp_path, 3)
        with pytest.raises(Killed):
            await killed.look()
        (whole,) = (tmp_path / "record").glob("*.gz")
        good = whole.read_bytes()
        whole.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        assert await archived.writer.look()
        assert whole.read_bytes() == good
        await check_archive(await opened(tmp_path))


async def test_a_file_whose_other_records_would_be_lost_is_not_replaced(tmp_path, monkeypatch):
    """A record file is rewritten to erase something: it is read back before it takes its place."""
    async with an_archived_mesh(tmp_path) as archived:
        secret, _ = await archived.work(1, 2)
        await archived.archive()
        before, packed = files_of(tmp_path), record_files.Packer.add

        def spoiled(self, bodies):
            return packed(self, [one if not isinstance(one, bytes) else one[:-1] for one in bodies])

        with monkeypatch.context() as patched:
            patched.setattr(record_files.Packer, "add", spoiled)
            with pytest.raises(AntiphonError):
                await erase_lane(await opened(tmp_path), job_key(KIND, secret), NOTE)
        assert files_of(tmp_path) == before
        await erase_lane(await opened(tmp_path), job_key(KIND, secret), NOTE)
        assert (await check_archive(await opened(tmp_path))).erased


async def test_a_checkpoint_that_its_readers_would_refuse_is_not_written(tmp_path, monkeypatch):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.work(1)
        await archived.seal()
        signed = checkpoints.signed

        def spoiled(said, did, signature):
            return signed(said, did, bytes([signature[0] ^ 1]) + signature[1:])

        monkeypatch.setattr(checkpoints, "signed", spoiled)
        with pytest.raises(Unreadable, match="checkpoint"):
            await archived.writer.look()
        assert not (tmp_path / "checkpoint").exists()
        monkeypatch.undo()
        assert await archived.writer.look()
        assert (await ArchiveReader.open(FolderStore(tmp_path))).size == archived.writer.size


@pytest.mark.parametrize("letter", ["\x01", '"', "é"])
async def test_no_subject_is_too_long_for_the_archive(tmp_path, letter):
    """A member may write junk under any name; its leaf would have no room for it in an entry."""
    async with an_archived_mesh(tmp_path) as archived:
        log, subject = archived.node.session.log, f"ap.{archived.mesh.mesh}.odd.{letter * 40_000}"
        await log.append(subject, b"junk", message_id="junk", expected_last=0)
        (job,) = await archived.work(1)
        await archived.archive()
        archive = await opened(tmp_path)
        assert (await check_archive(archive)).records == archived.writer.size
        leaves = [await archive.leaf_at(at) for at in range(archive.size)]
        assert digest(subject.encode()) in [one.subject for one in leaves]
        assert (await proved(archive, job)).job.outcome == "succeeded"
