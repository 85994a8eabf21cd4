"""Erasing: the bytes go, the proofs stay, and readers say who removed them and when."""

import pytest

from antiphon.core import bundle as core_bundle
from antiphon.core.archive.record_files import Erased
from antiphon.core.families.erasures.state import Erasure
from antiphon.core.families.jobs.state import job_key
from antiphon.core.proof import merkle
from antiphon.errors import Held, Rejected
from antiphon.runtime import file_store
from antiphon.runtime.archive.archive_check import check_archive
from antiphon.runtime.archive.archive_eraser import erase_lane
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.file_store import FolderStore, writing
from antiphon.sdk.archive.erasure import erase_archived
from antiphon.sdk.proofs import bundles
from tests.archive_verifier import verify
from tests.runtime.archive.archived_meshes import an_archived_mesh, files_of
from tests.runtime.meshes import KIND

NOTE = Erased(by="did:key:z6MkWho", at_ms=1_763_158_000_000)


async def opened(folder) -> ArchiveReader:
    return await ArchiveReader.open(FolderStore(folder))


async def test_an_erased_job_is_gone_and_everything_else_is_proved_as_before(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        secret, other = await archived.work(1, 2)
        await archived.archive()
        key = job_key(KIND, secret)
        before, places = files_of(tmp_path), await (await opened(tmp_path)).places_of(key)
        assert await erase_lane(await opened(tmp_path), key, NOTE) == len(places) > 2
        archive = await opened(tmp_path)
        with pytest.raises(Rejected, match="erased by did:key:z6MkWho on 2025-11-14") as caught:
            await assembled(archive, key)
        assert caught.value.reason == "erased"
        report = bundles.open_bundle(
            core_bundle.write(await assembled(archive, job_key(KIND, other)))
        )
        assert report.job.outcome == "succeeded"
        assert (await check_archive(archive)).erased == len(places)
        verify(tmp_path, (tmp_path / "vkey").read_text())
        now = files_of(tmp_path)
        changed = [path for path in before if now.get(path) != before[path]]
        assert [path.partition("/")[0] for path in changed] == ["record"]
        for place, leaf in places:
            path = [bytes.fromhex(node) for node in await archive.path(place, archive.size)]
            entry = (await archive.entries(archive_tile(archive, place)))[place]
            hashed = merkle.leaf_hash(entry)
            root = merkle.root_from_inclusion(place, archive.size, hashed, path)
            assert root == archive.checkpoint.root, f"record {leaf.seq} was there"


def archive_tile(archive, place):
    from antiphon.core.archive.tiles import ENTRIES, tile_of

    return tile_of(ENTRIES, place, archive.size)


async def test_what_was_erased_stays_erased_when_the_file_grows(tmp_path):
    async with an_archived_mesh(tmp_path) as archived:
        (secret,) = await archived.work(1)
        await archived.archive()
        count = await erase_lane(await opened(tmp_path), job_key(KIND, secret), NOTE)
        for more in (3, 260):
            await archived.litter(more, b"more %d" % more)
            await archived.archive()
            assert (await check_archive(await opened(tmp_path))).erased == count
        records = [path for path in files_of(tmp_path) if path.startswith("record/")]
        assert len(records) == 2, "no older copy of a file stays"
        assert await erase_lane(await opened(tmp_path), job_key(KIND, secret), NOTE) == count


async def test_one_process_at_a_time_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(file_store, "TRIES", 2)
    store = FolderStore(tmp_path)
    async with store.locked():
        with pytest.raises(Held, match="another process writes"):
            async with writing(store):
                pass
    async with writing(store):
        pass


async def test_a_job_is_erased_by_its_first_digits(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_ARCHIVE", str(tmp_path))
    async with an_archived_mesh(tmp_path) as archived:
        (secret,) = await archived.work(1)
        await archived.archive()
    order = Erasure(seq=1, at_ms=1, hlc=(1, 0), hlc_author="me")
    assert await erase_archived("0" * 64, order) == 0
    assert await erase_archived(secret[:12], order) > 2
