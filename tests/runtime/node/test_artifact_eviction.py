"""Eviction at run time: due ones are written, bytes go where nobody needs them, records stay."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.family import Evicted
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Corrupt, EngineDenied, Rejected
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.executors.handler_call import call_text, keep_arguments
from antiphon.runtime.node.artifact_eviction import Evictor
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_records import ReplicaBlobs
from tests.runtime.by_hand import called, completed, finished
from tests.runtime.coordinator.test_archiver import sealed
from tests.runtime.meshes import KIND, QUICK, a_mesh, on_both_engines_in_real_time, ops_on_lane

BIG = b"\xff" * 50_000
SHORT = replace(QUICK, artifact_ttl_ms=1)


class Kept:
    """A coordinating full node, its evictor, and jobs that wrote something."""

    def __init__(self, mesh, node, folder):
        self.mesh, self.node, self.folder = mesh, node, folder
        self.session = node.session
        self.blobs = node.session.engine.blobs
        self.evictor = Evictor(node, grace_s=0.0)

    async def store(self, data=BIG):
        (self.folder / "source").write_bytes(data)
        return await Artifacts(self.blobs).keep(self.folder / "source", "out")

    async def job(self, *outputs, **fields):
        job = await completed(self.session, self.session, KIND, *outputs, **fields)
        await self.sync()
        return job

    async def sync(self):
        newest = await self.session.log.last()
        await self.node.reached(newest.seq)

    async def look(self):
        await asyncio.sleep(0.005)  # a time to live of 1 ms is over
        await self.evictor.look()

    def evictions(self, job):
        return [said for op, said in ops_on_lane(self.node, job.id) if op == "job.evict"]


async def kept_on(mesh, folder, **how):
    node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner), **how)
    return Kept(mesh, node, folder)


@on_both_engines_in_real_time
async def test_what_is_due_is_evicted_on_the_log_and_its_bytes_go(engine, tmp_path):
    async with a_mesh(engine, SHORT) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output = await kept.store()
        job = await kept.job(output)
        await kept.look()
        assert kept.evictions(job) == ["ok"]
        await kept.look()
        assert not await kept.blobs.has(output.hash)
        assert kept.evictions(job) == ["ok"], "once is enough"
        ended = submission.ended_of(await kept.session.read_lane(KIND, job.id))
        assert ended.outputs == (output,), "what was made stays on record"
        assert ended.job.outcome == "succeeded"


async def test_before_its_time_nothing_is_touched(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output = await kept.store()
        job = await kept.job(output)
        await kept.look()
        assert kept.evictions(job) == []
        assert await kept.blobs.has(output.hash)


async def test_what_a_forgotten_job_stored_goes_before_its_time(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output, other = await kept.store(), await kept.store(BIG + b"other")
        job, beside = await kept.job(output), await kept.job(other)
        await forget(kept.session, KIND, job.id)
        await kept.sync()
        await kept.look()
        await kept.look()
        assert (kept.evictions(job), kept.evictions(beside)) == (["ok"], [])
        assert [await kept.blobs.has(one.hash) for one in (output, other)] == [False, True]


@pytest.mark.virtual_time
@pytest.mark.parametrize("why", ["forgotten", "its time is over"])
async def test_what_a_waiting_job_will_read_stays_until_it_waits_no_more(tmp_path, why):
    async with a_mesh("memory", QUICK if why == "forgotten" else SHORT) as mesh:
        kept = await kept_on(mesh, tmp_path)
        artifacts = Artifacts(kept.blobs)
        output = await artifacts.keep_bytes(BIG, "out")
        job, unfinished = await kept.job(output), await called(kept.session, KIND)
        content = manifest.author({"command": ["true"], "timeout": 30})
        named = ((KIND, job.id), (KIND, unfinished.id))
        body = ScheduleBody(kind=KIND, manifest=content, after=named, after_any_outcome=True)
        waiting = await submission.submit(kept.session, body)
        if why == "forgotten":
            await forget(kept.session, KIND, job.id)
        await kept.sync()
        for _ in range(2):
            await kept.look()
        assert kept.evictions(job) == []
        assert await kept.blobs.has(output.hash)
        await submission.cancel(kept.session, KIND, waiting.id, reason="")
        await kept.sync()
        await asyncio.sleep(3_600)
        await kept.look()
        await kept.look()
        assert kept.evictions(job) == ["ok"]
        assert not await kept.blobs.has(output.hash)


@pytest.mark.virtual_time
async def test_forgotten_jobs_that_began_again_do_not_hide_others(tmp_path):
    rules = replace(QUICK, retention_ms=3_600_000)
    async with a_mesh("memory", rules) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output = await Artifacts(kept.blobs).keep_bytes(BIG, "out")
        content = manifest.author({"command": ["true"], "timeout": 30})
        content = manifest.with_nonce(content, "0" * 32, "random")
        body = ScheduleBody(kind=KIND, manifest=content)
        first = await submission.submit(kept.session, body)
        await finished(kept.session, KIND, first, output)
        await forget(kept.session, KIND, first.id)
        await asyncio.sleep(2 * 3_600)
        assert await Archiver(kept.node, Archiving(every_s=1)).archive()
        again = await submission.submit(kept.session, body)
        assert (again.id, again.is_new) == (first.id, True)
        view = await kept.session.read_lane(KIND, again.id)
        await finished(kept.session, KIND, again, output, prev=view.lane.job_tail)
        other = await kept.job(output)
        await forget(kept.session, KIND, other.id)
        await kept.sync()
        kept.node.replica.flush()
        found = kept.node.replica.ask(ReplicaErasures).with_stored(limit=1)
        assert [one.id for one in found] == [other.id]


async def test_bytes_that_another_job_keeps_or_reads_stay(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output = await kept.store()
        first, second = await kept.job(output), await kept.job(output)
        await submission.evict(kept.session, KIND, first.id, output.hash)
        await kept.sync()
        await kept.look()
        assert await kept.blobs.has(output.hash), "the second job keeps it"
        reader = await called(kept.session, KIND, inputs=(output,))
        await submission.evict(kept.session, KIND, second.id, output.hash)
        await kept.sync()
        await kept.look()
        assert await kept.blobs.has(output.hash), "a job that has not ended reads it"
        third = await kept.job(output)
        await submission.cancel(kept.session, KIND, reader.id, reason="")
        await submission.evict(kept.session, KIND, third.id, output.hash)
        await kept.sync()
        await kept.look()
        assert not await kept.blobs.has(output.hash)


async def cancelled_call(kept, fields):
    """A call that was cancelled, and whose arguments its scheduler evicted."""
    content = manifest.author({"command": [f"@{KIND}"], "timeout": 1, **fields})
    content = manifest.with_nonce(content, kept.session.entropy.token(16).hex(), "random")
    body = ScheduleBody(kind=KIND, manifest=content)
    job = await submission.submit(kept.session, body)
    await submission.cancel(kept.session, KIND, job.id, reason="")
    (given,) = fields["inputs"]
    await submission.evict(kept.session, KIND, job.id, given["hash"])
    await kept.sync()
    await kept.look()


@on_both_engines_in_real_time
async def test_evicted_arguments_go_only_if_they_are_a_call(engine, tmp_path):
    async with a_mesh(engine, QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        text = call_text(("x" * 100_000,), {}).encode()
        call = await keep_arguments(text, Artifacts(kept.blobs))
        await cancelled_call(kept, call)
        assert not await kept.blobs.has(call["inputs"][0]["hash"])

        foreign = await kept.store()  # somebody keeps it, and no job reads it just now
        given = {**call["inputs"][0], "hash": foreign.hash, "size": foreign.size}
        await cancelled_call(kept, {"args": [], "inputs": [given]})
        assert await kept.blobs.has(foreign.hash)
        assert kept.node.replica.ask(ReplicaBlobs).evicted_before(2**50, limit=9) == [], (
            "and that is settled"
        )

        job = await kept.job(foreign)  # as an output it can be evicted as before
        await submission.evict(kept.session, KIND, job.id, foreign.hash)
        await cancelled_call(kept, {"args": [], "inputs": [given]})
        assert not await kept.blobs.has(foreign.hash)


@pytest.mark.virtual_time
async def test_snapshots_stay_whoever_calls_them_an_output(tmp_path):
    rules = replace(QUICK, retention_ms=3_600_000)
    async with a_mesh("memory", rules) as mesh:
        kept = await kept_on(mesh, tmp_path)
        archiver, made = Archiver(kept.node, Archiving(every_s=1)), []
        for number in range(3):
            await called(kept.session, KIND)
            await asyncio.sleep(2 * 3_600)
            assert await archiver.archive()
            assert await archiver.make_snapshot()
            made.append(kept.node.snapshot_made[1])
            if number < 2:  # the last one is not named by a seal yet
                await sealed(kept.node)
        there = [one for one in made if await kept.blobs.has(one)]
        assert there == made, "the one before the newest seal's is still being read"
        for one in made:
            snapshot = Output(name="out", stored=Stored(hash=one, size=9, sha256="0" * 64))
            job = await kept.job(snapshot)
            await submission.evict(kept.session, KIND, job.id, one)
        await kept.sync()
        await asyncio.sleep(1)
        await kept.look()
        assert [one for one in made if await kept.blobs.has(one)] == made
        fresh = await kept_on(mesh, tmp_path)  # a coordinator that was restarted
        await fresh.sync()
        await fresh.look()
        assert await kept.blobs.has(made[1]), "seals name it"


async def test_bytes_go_only_after_a_while(tmp_path):
    async with a_mesh("memory", SHORT) as mesh:
        kept = await kept_on(mesh, tmp_path)
        kept.evictor = Evictor(kept.node, grace_s=60.0)
        output = await kept.store()
        job = await kept.job(output)
        await kept.look()
        await kept.look()
        assert kept.evictions(job) == ["ok"]
        assert await kept.blobs.has(output.hash)


async def test_a_node_that_does_not_coordinate_does_nothing(tmp_path):
    async with a_mesh("memory", SHORT) as mesh:
        node = await mesh.node(caretaking=False)
        kept = Kept(mesh, node, tmp_path)
        output = await kept.store()
        job = await kept.job(output)
        await kept.look()
        assert kept.evictions(job) == []
        assert await kept.blobs.has(output.hash)


async def test_a_crash_between_the_record_and_the_removal_forgets_nothing(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path, path=tmp_path / "replica.db")
        output = await kept.store()
        job = await kept.job(output)
        await submission.evict(kept.session, KIND, job.id, output.hash)
        await kept.sync()
        again = Replica(tmp_path / "replica.db", mesh=mesh.mesh, read_only=True)
        assert again.ask(ReplicaBlobs).evicted_before(2**50, limit=9) == [Evicted(output.hash)]
        assert not again.ask(ReplicaBlobs).is_needed(output.hash)
        again.close()
        # A replica that is made anew from the log knows it as well.
        fresh = await kept_on(mesh, tmp_path)
        await fresh.sync()
        await fresh.look()
        assert not await kept.blobs.has(output.hash)
        assert fresh.node.replica.ask(ReplicaBlobs).evicted_before(2**50, limit=9) == []


async def test_evicting_twice_says_what_holds_and_writes_nothing(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        output = await kept.store()
        job = await kept.job(output)
        for _ in range(2):
            after = await submission.evict(kept.session, KIND, job.id, output.hash)
            assert after.evicted == (output.hash,)
        await kept.sync()
        assert kept.evictions(job) == ["ok"]


async def test_what_cannot_be_evicted_is_said_before_anything_is_written(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        open_job = await called(kept.session, KIND)
        with pytest.raises(Rejected) as caught:
            await submission.evict(kept.session, KIND, open_job.id, f"blake3:{0:064x}")
        assert caught.value.reason == Verdict.NOT_ENDED


def test_artifacts_are_kept_for_thirty_days_unless_the_rules_say_otherwise():
    assert Rules().artifact_ttl_ms == 30 * 24 * 3600 * 1000


@on_both_engines_in_real_time
async def test_bytes_that_are_kept_elsewhere_go_from_there(engine, tmp_path):
    async with a_mesh(engine, SHORT) as mesh:
        kept = await kept_on(mesh, tmp_path)
        removed: list[str] = []

        class Elsewhere:
            async def remove(self, digest):
                removed.append(digest)

        kept.evictor = Evictor(kept.node, blobs=Elsewhere(), grace_s=0.0)
        output = await kept.store()
        await kept.job(output)
        await kept.look()
        await kept.sync()
        await kept.look()
        assert removed == [output.hash]
        assert await kept.blobs.has(output.hash), "the engine's own were not touched"


class Bucket:
    """A store that says once that it is denied, and has one damaged blob."""

    def __init__(self):
        self.removed, self.asked = [], 0

    async def remove(self, digest):
        self.asked += 1
        if self.asked == 1:
            raise EngineDenied("the request is too old")
        self.removed.append(digest)

    @asynccontextmanager
    async def get(self, digest):
        raise Corrupt(f"{digest} is damaged")
        yield


@pytest.mark.virtual_time
@pytest.mark.parametrize("is_bucket", [True, False])
async def test_a_bucket_that_denies_something_once_is_asked_again(tmp_path, is_bucket):
    async with a_mesh("memory", SHORT) as mesh:
        kept = await kept_on(mesh, tmp_path)
        bucket = Bucket()
        kept.evictor = Evictor(kept.node, blobs=bucket, grace_s=0.0)
        if not is_bucket:
            kept.session.engine.blobs = bucket
        running = asyncio.ensure_future(kept.evictor.run())
        mesh.stack.callback(running.cancel)
        output = await Artifacts(kept.blobs).keep_bytes(BIG, "out")
        await kept.job(output)
        await asyncio.sleep(600)
        assert running.done() == (not is_bucket), "who may not remove there never may"
        assert bucket.removed == ([output.hash] if is_bucket else [])


async def test_a_damaged_blob_does_not_keep_others_from_being_removed(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        kept = await kept_on(mesh, tmp_path)
        text = call_text(("x" * 100_000,), {}).encode()
        call = await keep_arguments(text, Artifacts(kept.blobs))
        bucket = Bucket()
        bucket.asked = 1
        kept.evictor = Evictor(kept.node, blobs=bucket, grace_s=0.0)
        await cancelled_call(kept, call)
        assert kept.node.replica.ask(ReplicaBlobs).evicted_before(2**50, limit=9) == []
        assert bucket.removed == [], "whose it is, nobody can tell"


@pytest.mark.virtual_time
async def test_what_an_archived_job_stored_goes_without_a_record_and_keeps_nobody_waiting(tmp_path):
    hour_ms = 3_600_000
    rules = replace(QUICK, artifact_ttl_ms=3 * hour_ms, retention_ms=hour_ms)
    async with a_mesh("memory", rules) as mesh:
        kept = await kept_on(mesh, tmp_path)
        artifacts = Artifacts(kept.blobs)
        old = await artifacts.keep_bytes(BIG, "out")
        archived = await kept.job(old)
        await asyncio.sleep(2 * 3_600)
        assert await Archiver(kept.node, Archiving(every_s=1)).archive()
        assert (await kept.session.read_lane(KIND, archived.id)).lane.job is None
        young = await artifacts.keep_bytes(b"\xfe" * 50_000, "out")
        later = await kept.job(young)
        await kept.look()
        assert await kept.blobs.has(old.hash), "not before its time"
        await asyncio.sleep(4 * 3_600)
        await kept.look()
        await kept.sync()
        await kept.look()
        assert kept.evictions(archived) == []
        assert kept.evictions(later) == ["ok"]
        assert not await kept.blobs.has(old.hash)
        assert not await kept.blobs.has(young.hash)
        assert not kept.node.replica.ask(ReplicaJobs).kept_before(2**60, limit=9)
