"""Two machines compare their histories, and say at which record these part."""

import pytest

from antiphon.core.archive import checkpoint
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Misconfigured, Rejected, Unavailable
from antiphon.interfaces.cli.checks.histories import findings
from antiphon.ports import Record
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.replica.replica import Replica
from antiphon.sdk.archive import witness
from antiphon.sdk.archive.witness import OwnHistory, compare, compare_with
from chaos.tamper.sealed_jobs import ExportSource
from tests.runtime.archive.archived_meshes import an_archived_mesh
from tests.runtime.meshes import a_mesh, eventually, on_both_engines_in_real_time


def a_history(count: int, other_from: int = 10**9) -> OwnHistory:
    """A log, perhaps with other records from a place on."""
    replica = Replica(":memory:", mesh="m")
    for n in range(1, count + 1):
        payload = b"other %d" % n if n > other_from else b"%d" % n
        replica.note(Record(n, n * 10**6, "ap.m.else", payload), Verdict.SUBJECT)
    replica.flush()
    return OwnHistory(replica.tree, count)


@pytest.mark.parametrize("sizes", [(300, 300), (300, 17), (17, 300), (1, 256)])
async def test_histories_of_any_sizes_agree_as_far_as_both_go(sizes):
    told = await compare(*map(a_history, sizes))
    assert (told.result, told.common) == ("same", min(sizes))


@pytest.mark.parametrize("parts_at", [0, 1, 16, 99, 255])
@pytest.mark.parametrize("sizes", [(300, 270), (270, 300)])
async def test_the_record_at_which_two_histories_part_is_found(parts_at, sizes):
    mine, other = a_history(sizes[0]), a_history(sizes[1], parts_at)
    told = await compare(mine, other)
    assert (told.result, told.common, told.is_exact) == ("parted", parts_at, True)
    (finding,) = findings(told)
    assert finding.level == "wrong"
    assert f"the first {parts_at:,} record" in finding.sentence


class Seen(ExportSource):
    """As much of a mesh as comparing needs."""

    def __init__(self, node) -> None:
        super().__init__(node)
        self.id = node.session.mesh
        self.connection = self

    @property
    def did(self):
        return self.session.author.did


async def test_an_archive_and_its_checkpoint_are_compared_with_the_replica(tmp_path):
    folder, older = tmp_path / "archive", tmp_path / "older"
    async with an_archived_mesh(folder) as archived:
        await archived.work(1)
        await archived.archive()
        older.write_bytes((folder / "checkpoint").read_bytes())
        await archived.work(2)
        await archived.archive()
        mesh = Seen(archived.node)
        for against in (folder, older, folder / "checkpoint"):
            told = await compare_with(mesh, str(against))
            assert (told.result, told.by_coordinator) == ("same", True)
        said, _ = checkpoint.read(older.read_bytes())
        forged = checkpoint.Checkpoint(said.mesh, said.size, bytes(32))
        owner = archived.mesh.owner
        older.write_bytes(checkpoint.signed(forged, owner.did, owner.sign_checkpoint(forged)))
        told = await compare_with(mesh, str(older))
        assert (told.result, told.by_coordinator, told.is_exact) == ("parted", True, False)
        assert "keep both" in findings(told)[0].hint
        older.write_bytes(checkpoint.signed(said, owner.did, bytes(64)))
        told = await compare_with(mesh, str(older))
        assert [one.level for one in findings(told)] == ["ok", "warning"]
        longer = checkpoint.Checkpoint(said.mesh, 10**6, bytes(32))
        older.write_bytes(checkpoint.signed(longer, owner.did, owner.sign_checkpoint(longer)))
        told = await compare_with(mesh, str(older))
        assert (told.result, findings(told)[0].level) == ("unproved", "warning")
        reader = await ArchiveReader.open(FolderStore(folder))
        assert await reader.root_at(said.size) == said.root
        foreign = checkpoint.Checkpoint("a" * 16, 1, bytes(32))
        older.write_bytes(checkpoint.signed(foreign, owner.did, owner.sign_checkpoint(foreign)))
        with pytest.raises(Rejected, match="another mesh"):
            await compare_with(mesh, str(older))
        older.write_text("no note")
        with pytest.raises(Misconfigured, match="not a checkpoint"):
            await compare_with(mesh, str(older))


@on_both_engines_in_real_time
async def test_another_full_node_is_asked_and_its_answer_is_its_own(engine, monkeypatch):
    async with a_mesh(engine) as mesh:
        one = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        other = await mesh.node(bar_s=0.5)
        await eventually(lambda: other.applied >= one.applied > 0)
        told = await compare_with(Seen(one), other.did)
        assert told.result == "same"
        assert told.common > 0
        for junk in (b"", b"{}", b"x" * 300, b'["did:key:z6Mk", [1]]'):
            await one.session.engine.bus.publish("roots", junk, reply="inbox.x.1")
        assert (await compare_with(Seen(one), other.did)).result == "same", "it still answers"
        monkeypatch.setattr(witness, "ANSWER_WITHIN_S", 0.3)
        with pytest.raises(Unavailable, match="does not answer"):
            await compare_with(Seen(one), mesh.owner.did)
