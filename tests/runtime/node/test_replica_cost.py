"""What a replica does for each record does not grow with what it holds."""

import re

import msgspec
import pytest

from antiphon.core.families.jobs.ops import Retry
from antiphon.runtime.caller import submission
from antiphon.runtime.replica import replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from tests.runtime.by_hand import called, finished
from tests.runtime.meshes import a_mesh, call, eventually

LARGE = ("records", "named", "evicted", "jobs", "documents", "locks", "plans")


def scans(db, sql: str) -> list[str]:
    """The large tables that a statement reads from end to end."""
    plan = [row[-1] for row in db.execute(f"explain query plan {sql}")]
    return [one for one in plan if re.match(rf"SCAN ({'|'.join(LARGE)})\b(?! USING)", one)]


@pytest.mark.virtual_time
async def test_no_table_is_read_from_end_to_end_while_jobs_begin_wait_and_end():
    async with a_mesh("memory") as mesh:
        owner = await mesh.connection(mesh.owner)
        node = await mesh.node(connection=owner)
        session, seen = (await mesh.connection()).session, set()
        db = node.replica._db
        db.set_trace_callback(seen.add)
        first = await called(session, "a.b")
        waiting = await call(session, 1, kind="a.b", after=(("a.b", first.id),), retry=Retry())
        doomed = await call(session, 2, kind="a.b", after=(("a.b", first.id),))
        await node.reached(doomed.seq)
        await submission.cancel(session, "a.b", doomed.id, reason="")
        await finished(session, "a.b", first)
        await eventually(
            lambda: node.replica.ask(ReplicaJobs).job("a.b", waiting.id).state.value == "pending"
        )
        db.set_trace_callback(None)
        written = [sql for sql in seen if re.match(r"(?i)\s*(insert|update|delete|select)", sql)]
        assert len(written) > 20
        assert {sql[:120]: found for sql in written if (found := scans(db, sql))} == {}


@pytest.mark.virtual_time
async def test_lanes_in_memory_are_counted_by_what_they_take(monkeypatch):
    """However many jobs each of them waits for, what a node keeps of them is bounded."""
    monkeypatch.setattr(replica, "LANES_IN_MEMORY", 200)
    async with a_mesh("memory") as mesh:
        node = await mesh.node(caretaking=False)
        session, after = (await mesh.connection()).session, []
        for number in range(100):
            job = await call(session, number, kind="a.b", after=tuple(after[-64:]))
            after.append(("a.b", job.id))
        await node.reached(job.seq)
        lanes = [held.lane for held in node.replica._lanes.values()]
        size = sum(len(msgspec.msgpack.encode(one)) for one in lanes)
        assert len(lanes) > 5
        assert size <= 200 * replica.LANE_BYTES
