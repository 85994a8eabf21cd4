"""Restore: the same log for every reader, or nothing; and those who had seen more are told."""

import shutil
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from antiphon import Mesh
from antiphon.assembly import backups, restoration
from antiphon.assembly.replaced_log import accept_replaced
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import Corrupt, Held, LogReplaced, Misconfigured
from antiphon.runtime.backup.host_files import key_files
from antiphon.runtime.backup.key_file import KeyFile
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import dev_mesh, hosted_mesh
from tests.assembly.backed_up import BYTES, a_mesh_to_back_up, hosted_again

pytestmark = pytest.mark.nats


def keys_of(home: StateDirectory) -> KeyFile:
    return KeyFile(mesh=home.mesh().mesh, made_ms=0, files=key_files(home.path))


def told_by(node) -> list[tuple]:
    """Everything that a full node knows of the log: place, time, bytes and verdict."""
    seqs = range(1, node.replica.cursor.seq + 1)
    found = (node.replica.record(seq) for seq in seqs)
    return [(one.record, one.verdict) for one in found if one is not None]


@asynccontextmanager
async def restored(directory, keys, name="again"):
    home = StateDirectory(directory / name)
    done = await restoration.restore(FolderStore(directory / "backup"), home, keys)
    async with hosted_again(home.path, hosted_mesh.host(home.path)) as at:
        yield done, at


async def test_every_reader_sees_the_same_log_after_a_restore(tmp_path):
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        kept = await at.keep(BYTES)
        await at.seal()
        await at.work()
        written = await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        upto = written.manifest.upto
        await at.node.reached(upto)
        before = [one for one in told_by(at.node) if one[0].seq <= upto]
        keys = keys_of(at.home)
        address = at.owner.messages.address
    shutil.rmtree(tmp_path / "owner")
    async with restored(tmp_path, keys) as (done, at):
        assert done.report.upto == upto
        now = [one for one in told_by(at.node) if one[0].seq <= upto]
        assert now == before
        fresh = await at.owner.connection.session.log.read(0, limit=upto)
        assert [one for one in fresh.records if one.seq <= upto] == [one for one, _ in before]
        await at.owner.artifacts.fetch(kept, tmp_path / "fetched")
        assert (tmp_path / "fetched").read_bytes() == BYTES
        assert at.owner.messages.address == address
        async with at.owner.messages.inbox() as inbox:
            first = await anext(aiter(inbox))
            assert str(first.payload).startswith("hello")
        await at.work()
        await at.seal()


async def test_members_go_on_without_a_new_ticket(tmp_path):
    terms = Terms(can=("read", "schedule"), kinds=("team.*",), alias="laptop")
    member = StateDirectory(tmp_path / "laptop")
    async with a_mesh_to_back_up(tmp_path) as at:
        await hosted_mesh.redeem(member, hosted_mesh.invite(at.home, terms), alias="laptop")
        async with Mesh.open(home=member.path) as mesh:
            await mesh.submit("team.add", 1, 2)
        await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        keys = keys_of(at.home)
    shutil.rmtree(tmp_path / "owner")
    async with restored(tmp_path, keys), Mesh.open(home=member.path) as mesh:
        await mesh.submit("team.add", 3, 4)


async def test_who_had_seen_more_stops_and_goes_on_when_a_person_accepts_it(tmp_path):
    terms = Terms(can=("read", "schedule"), kinds=("team.*",), alias="reader")
    reader = StateDirectory(tmp_path / "reader")
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(a_mesh_to_back_up(tmp_path))
        await hosted_mesh.redeem(reader, hosted_mesh.invite(at.home, terms), alias="reader")
        await at.work()
        written = await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        keys = keys_of(at.home)
        lost = await at.owner.submit("team.late", 5)
        mesh = await stack.enter_async_context(Mesh.open(home=reader.path))
        async with mesh.node() as node:
            last = await mesh.connection.session.log.last()
            await node.reached(last.seq)
    assert (await backups.check(FolderStore(tmp_path / "backup"))).upto == written.manifest.upto
    shutil.rmtree(tmp_path / "owner")
    async with restored(tmp_path, keys) as (_, at):
        with pytest.raises(LogReplaced) as caught:
            async with Mesh.open(home=reader.path) as mesh, mesh.node():
                pass
        assert "antiphon restore --accept" in caught.value.hint
        accepted = await accept_replaced(reader)
        assert accepted.kept is not None
        assert accepted.kept.exists()
        named = {(one.op, one.kind, one.name) for one in accepted.lost}
        assert ("job.schedule", "team.late", lost.id) in named
        assert accepted.agreed <= written.manifest.upto
        async with Mesh.open(home=reader.path) as mesh, mesh.node() as node:
            last = await at.owner.connection.session.log.last()
            await node.reached(last.seq - 1)
        again = await accept_replaced(reader)
        assert (again.lost, again.kept) == ((), None)


async def test_a_session_that_had_seen_more_stops_when_it_reconnects(tmp_path):
    member = StateDirectory(tmp_path / "laptop")
    terms = Terms(can=("read", "schedule"), kinds=("team.*",), alias="laptop")
    async with AsyncExitStack() as outer:
        async with a_mesh_to_back_up(tmp_path) as at:
            await hosted_mesh.redeem(member, hosted_mesh.invite(at.home, terms), alias="laptop")
            await at.work()
            await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
            keys = keys_of(at.home)
            mesh = await outer.enter_async_context(Mesh.open(home=member.path))
            handle = await mesh.submit("team.late", 6)
            await handle.state()
        shutil.rmtree(tmp_path / "owner")
        async with restored(tmp_path, keys) as (_, at):
            session = mesh.connection.session
            while not session.engine.connected:
                await session.pause(0)
            with pytest.raises(LogReplaced):
                await handle.state()


async def test_nothing_is_served_from_a_backup_that_is_damaged(tmp_path):
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await at.keep(BYTES)
        await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        keys = keys_of(at.home)
    (blob,) = (path for path in (tmp_path / "backup" / "blobs").rglob("*") if path.is_file())
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1])
    home = StateDirectory(tmp_path / "again")
    with pytest.raises(Corrupt):
        await restoration.restore(FolderStore(tmp_path / "backup"), home, keys)
    assert not (home.path / "mesh.json").exists()
    blob.write_bytes(whole)
    done = await restoration.restore(FolderStore(tmp_path / "backup"), home, keys)
    assert done.report.blobs == 1
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").write_text("mine")
    with pytest.raises(Held, match="not empty"):
        await restoration.restore(
            FolderStore(tmp_path / "backup"), StateDirectory(tmp_path / "used"), keys
        )
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["mine.txt"]
    with pytest.raises(Held, match="already has"):
        await restoration.restore(FolderStore(tmp_path / "backup"), home, keys)
    other = KeyFile(mesh="other", made_ms=0, files={})
    with pytest.raises(Misconfigured, match="these keys"):
        await restoration.restore(
            FolderStore(tmp_path / "backup"), StateDirectory(tmp_path / "new"), other
        )


async def test_a_development_mesh_comes_back_too(tmp_path):
    async with dev_mesh.development(tmp_path / "dev", name="dev") as made:
        async with Mesh.open(home=tmp_path / "dev") as mesh:
            await mesh.submit("team.add", 1, 2)
        written = await backups.back_up(made.home, FolderStore(tmp_path / "backup"))
        keys = keys_of(made.home)
    shutil.rmtree(tmp_path / "dev")
    home = StateDirectory(tmp_path / "again")
    done = await restoration.restore(FolderStore(tmp_path / "backup"), home, keys)
    assert (done.is_secured, done.report.upto) == (False, written.manifest.upto)
    async with (
        dev_mesh.development(home.path, name="dev") as made,
        Mesh.open(home=home.path) as mesh,
    ):
        assert not made.is_new
        last = await mesh.connection.session.log.last()
        assert last.seq >= written.manifest.upto


async def test_a_log_with_purged_records_keeps_its_gaps(tmp_path):
    async with a_mesh_to_back_up(tmp_path) as at:
        await at.work()
        await at.seal()
        log = at.owner.connection.session.log
        upto = (await log.last()).seq
        mesh = at.home.mesh().mesh
        purged = await log.purge(f"ap.{mesh}.jobs.>", upto=upto)
        await at.work(jobs=1)
        await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        before = (await log.read(0, limit=500)).records
        keys = keys_of(at.home)
    report = await backups.check(FolderStore(tmp_path / "backup"))
    assert report.purged == purged > 0
    shutil.rmtree(tmp_path / "owner")
    home = StateDirectory(tmp_path / "again")
    done = await restoration.restore(FolderStore(tmp_path / "backup"), home, keys)
    assert not home.replica.exists()
    async with hosted_mesh.host(home.path), Mesh.open(home=home.path) as mesh:
        now = (await mesh.connection.session.log.read(0, limit=500)).records
        assert [one for one in now if one.seq <= done.report.upto] == [
            one for one in before if one.seq <= done.report.upto
        ]
