"""A mesh whose coordinator writes an archive: what has ended leaves the log, and is found again."""

import asyncio

from msgspec.structs import replace

from antiphon import assembly
from antiphon.assembly import node_services
from antiphon.core.authority import rules as mesh_rules
from antiphon.core.families.jobs.state import job_key
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.caller import submission
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.log import session as log_session
from antiphon.runtime.replica.replica import Replica
from tests.patience import PATIENCE_S
from tests.runtime.coordinator.test_archived_predecessors import submitted
from tests.runtime.meshes import KIND, QUICK, a_mesh, eventually, on_both_engines_in_real_time

RETENTION_MS = 300


async def hot_jobs(session):
    """The subjects of jobs that are on the log."""
    found, after, more = set(), 0, True
    while more:
        page = await session.log.read(after, limit=500, subject=f"ap.{session.mesh}.jobs.>")
        found |= {one.subject for one in page.records}
        after, more = page.records[-1].seq if page.records else after, page.more
    return found


@on_both_engines_in_real_time
async def test_what_has_ended_leaves_the_log_for_the_archive(engine, tmp_path, monkeypatch):
    for module in (mesh_rules, log_session):  # nobody waits for an hour here
        monkeypatch.setattr(module, "RETENTION_LEAST_MS", RETENTION_MS)
    monkeypatch.setattr(node_services, "ARCHIVE_S", 0.3)
    async with a_mesh(engine, replace(QUICK, retention_ms=RETENTION_MS)) as mesh:
        owner = await mesh.connection(mesh.owner)
        replica = Replica(tmp_path / "replica.db", mesh=mesh.mesh)
        mesh.stack.callback(replica.close)
        session, folder = owner.session, tmp_path / "archive"
        host = assembly.replicating(owner, replica, caretaking=True, bar_s=0.2, archive=folder)
        node = await mesh.stack.enter_async_context(host)
        lasting = await submitted(session, "lasting")
        jobs = [await submitted(session, f"{number}") for number in range(8)]
        for job in jobs:
            await submission.cancel(session, KIND, job.id, reason="done with")
        left = set()

        async def is_cold():
            nonlocal left
            left = await hot_jobs(session)
            return {one.rpartition(".")[2] for one in left} == {lasting.id}

        async with asyncio.timeout(PATIENCE_S):
            while not await is_cold():
                await asyncio.sleep(0.1)
        reader = await ArchiveReader.open(FolderStore(folder))
        for job in jobs:
            assert await assembled(reader, job_key(KIND, job.id)) is not None
        newcomer = await mesh.node(caretaking=False)
        assert newcomer.replica.tree.base > 0, "it began with a snapshot"
        await submission.cancel(session, KIND, lasting.id, reason="done with")
        await eventually(lambda: newcomer.applied >= node.applied > lasting.seq)
        upto = min(newcomer.replica.cursor.seq, node.replica.cursor.seq)
        assert newcomer.replica.tree.mark_at(upto) == node.replica.tree.mark_at(upto)
