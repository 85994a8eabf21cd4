"""What is sealed goes to the archive: whole files, once, whatever happens meanwhile."""

import pytest
from structlog.testing import capture_logs

from antiphon.core import bundle as core_bundle
from antiphon.core.archive import checkpoint
from antiphon.core.archive.signed_note import NoteKey
from antiphon.core.families.jobs.state import job_key
from antiphon.errors import Corrupt
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.archive_writer import ArchiveWriter
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.node.sealer import Sealer
from antiphon.sdk.proofs import bundles
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of
from tests.runtime.meshes import KIND


class Killed(BaseException):
    """Ends a writer wherever it is."""


class FailingStore(FolderStore):
    """Ends its writer before the n-th rename, with the new file written beside."""

    def __init__(self, folder, writes: int) -> None:
        super().__init__(folder)
        self.left = writes

    async def write_parts(self, path, parts):
        async def counted():
            async for part in parts:
                yield part
            self.left -= 1
            if self.left < 0:
                raise Killed

        await super().write_parts(path, counted())


async def proved(archive: ArchiveReader, job: str):
    bundle = await assembled(archive, job_key(KIND, job))
    return bundles.open_bundle(core_bundle.write(bundle))


async def test_an_archive_alone_proves_every_job_that_it_has(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        first = await archived.work(1, 2)
        await archived.archive()
        second = await archived.work(3)
        await archived.archive()
        owner = archived.mesh.owner.did
    archive = await ArchiveReader.open(FolderStore(tmp_path))
    for job in (*first, *second):
        report = await proved(archive, job)
        assert report.job.outcome == "succeeded"
        assert report.owner == owner
    assert archive.note.is_signed_by(NoteKey(archive.checkpoint.origin, owner))
    assert (tmp_path / "vkey").read_text().startswith(f"antiphon/{archive.mesh}+")


async def test_nothing_is_written_where_nothing_new_is_sealed(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        assert not await archived.writer.look(), "there is no seal yet"
        assert files_of(tmp_path) == {}
        await archived.archive()
        before = files_of(tmp_path)
        await archived.work(1)
        assert not await archived.writer.look(), "it is not sealed"
        assert files_of(tmp_path) == before


async def test_full_files_never_change_and_partial_ones_go_when_the_full_one_is_there(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        full: dict[str, bytes] = {}
        for _ in range(4):
            await archived.litter(100)
            await archived.archive()
            now = files_of(tmp_path)
            assert full.items() <= now.items()
            full = {path: data for path, data in now.items() if path.startswith("tile/0/000")}
            full = {path: data for path, data in full.items() if ".p/" not in path}
        assert "tile/0/000" in now
        assert not any(path.startswith(("tile/0/000.p", "tile/entries/000.p")) for path in now)
        records = [path for path in now if path.startswith("record/")]
        assert len(records) == 2, "one full, and the newest partial"


@pytest.mark.parametrize("writes", [0, 1, 2, 6, 7, 8, 9])
async def test_a_writer_that_was_killed_anywhere_leaves_no_half_file_and_is_continued(
    tmp_path, writes
):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    async with an_archived_mesh(whole) as archived:
        await archived.litter(200)
        (job,) = await archived.work(1)
        await archived.archive()
        other = archived.new_writer()
        other.store = FailingStore(killed, 10**6)
        assert await other.look()
        await archived.litter(100)
        await archived.archive()
        other.store.left = writes
        with pytest.raises(Killed):
            await other.look()
        alone = await ArchiveReader.open(FolderStore(killed))
        assert (await proved(alone, job)).job.outcome == "succeeded"
        again = archived.new_writer()
        again.store = FolderStore(killed)
        assert await again.look()

        def lasting(files):
            """Without partial files of sizes in between, which may stay."""
            return {path: data for path, data in files.items() if ".p/" not in path}

        assert {
            path: data for path, data in lasting(files_of(killed)).items() if ".new" not in path
        }.items() >= lasting(files_of(whole)).items()


async def test_a_writer_does_not_go_on_with_another_history(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.work(1)
        await archived.archive()
        found, _ = checkpoint.read((tmp_path / "checkpoint").read_bytes())
        forged = checkpoint.Checkpoint(found.mesh, found.size, bytes(32))
        signature = archived.mesh.owner.sign_checkpoint(forged)
        (tmp_path / "checkpoint").write_bytes(
            checkpoint.signed(forged, archived.mesh.owner.did, signature)
        )
        await archived.work(2)
        await archived.seal()
        before = files_of(tmp_path)
        with pytest.raises(Corrupt, match="another history") as caught:
            await archived.new_writer().look()
        assert "doctor --against" in caught.value.hint
        assert files_of(tmp_path) == before


async def test_only_the_coordinators_key_signs(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        await archived.work(1)
        await archived.seal()
        connection = await archived.mesh.connection()
        node = await archived.mesh.node(caretaking=False, connection=connection)
        await node.reached(archived.node.applied)
        writer = archived.new_writer()
        writer.node, writer._keyring = node, connection.keyring
        with capture_logs() as logged:
            assert not await writer.look()
            assert not await writer.look()
        assert files_of(tmp_path) == {}
        assert [one["event"] for one in logged] == ["archive_needs_coordinator"], "said once"


async def test_a_coordinator_that_began_with_a_snapshot_goes_on_with_its_archive(tmp_path):
    async with an_archived_mesh(tmp_path / "archive") as archived:
        await archived.work(*range(3))
        await archived.litter(600)
        node, mesh = archived.node, archived.mesh
        archiver = Archiver(node, Archiving(every_s=1, is_purging=True))
        await node.reached((await node.session.log.last()).seq)
        assert await archiver.archive(), "nothing leaves, but there is a snapshot"
        assert await archiver.make_snapshot()
        await archived.archive()
        fresh = await mesh.connection(mesh.owner)
        again = await mesh.node(caretaking=False, connection=fresh)
        assert again.replica.tree.base > 512
        await archived.litter(5, b"more")
        await again.reached((await node.session.log.last()).seq)
        await node.reached(again.applied)
        assert await Sealer(again, bar_s=1.0).seal()
        await again.reached((await node.session.log.last()).seq)
        await node.reached(again.applied)
        writer = ArchiveWriter(again, mesh.owner, FolderStore(tmp_path / "archive"))
        assert await writer.look()
        other = ArchiveWriter(node, mesh.owner, FolderStore(tmp_path / "other"))
        assert await other.look()
        found = files_of(tmp_path / "archive")
        assert {path: found[path] for path in files_of(tmp_path / "other")} == files_of(
            tmp_path / "other"
        )
