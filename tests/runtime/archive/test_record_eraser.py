"""A forgotten job's bytes leave replicas with the log's; what is proved of it stays."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.erasures.state import erasure_key
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import job_key
from antiphon.core.manifest import NonceInput
from antiphon.core.proof import merkle
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Rejected
from antiphon.runtime.archive.bundle_assembly import assembled
from antiphon.runtime.archive.record_eraser import RecordEraser
from antiphon.runtime.archive.record_source import ReplicaSource
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.erasure import forget
from antiphon.runtime.executors.step import QuestionTerms
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_jobs import ReplicaJobs
from antiphon.runtime.replica.replica_tree import leaf_of_row
from tests.runtime.coordinator.test_archived_predecessors import HOUR_S, submitted
from tests.runtime.coordinator.test_archiver import OPEN, an_archiver
from tests.runtime.log.test_archived_lanes import end
from tests.runtime.meshes import KIND, a_mesh
from tests.runtime.node.test_snapshots import archived

pytestmark = pytest.mark.virtual_time
SECRET = "a-name-of-somebody"


class Place:
    """A mesh whose coordinator archives, and a full node beside it with a replica in a file."""

    def __init__(self, mesh, session, archiver, node, path):
        self.mesh, self.session, self.archiver = mesh, session, archiver
        self.node, self.path = node, path
        self.eraser = RecordEraser(node)

    async def sync(self):
        last = await self.session.log.last()
        await asyncio.gather(*(one.reached(last.seq) for one in (self.node, self.archiver.node)))

    async def archive(self):
        await archived(self.archiver.node, self.archiver)
        await self.sync()

    async def ended(self, word=SECRET, **fields):
        job = await submitted(self.session, word, **fields)
        await end(self.session, job.id)
        await self.sync()
        return job

    async def forget(self, job):
        order = await forget(self.session, KIND, job.id)
        await self.sync()
        return order

    def payloads(self, job):
        return [one.record.payload for one in self.node.replica.lane_records(job_key(KIND, job.id))]

    def verdicts(self, job):
        return [one.verdict for one in self.node.replica.lane_records(job_key(KIND, job.id))]

    def on_disk(self, text=SECRET):
        beside = self.path.parent.glob(f"{self.path.name}*")
        return any(text.encode() in path.read_bytes() for path in beside)


@asynccontextmanager
async def a_place(folder):
    async with a_mesh("memory", OPEN) as mesh:
        session, _, archiver = await an_archiver(mesh)
        path = folder / "replica.db"
        node = await mesh.node(caretaking=False, path=path)
        yield Place(mesh, session, archiver, node, path)


async def test_bytes_stay_until_the_archive_and_leave_every_file_with_it(tmp_path):
    async with a_place(tmp_path) as here:
        secret, other = await here.ended(), await here.ended("another")
        before = here.payloads(secret)
        upto = here.node.replica.cursor.seq
        mark = here.node.replica.tree.mark_at(upto)
        order = await here.forget(secret)
        assert not await here.eraser.look(), "ops on the log may still name its records"
        assert here.on_disk()
        await here.archive()
        assert await here.eraser.look() == len(before) == 2
        assert not here.on_disk()
        assert here.payloads(secret) == [b"", b""]
        assert here.on_disk("another")
        assert all(here.payloads(other))
        stored = here.node.replica.lane_records(job_key(KIND, secret.id))
        assert [one.erased.digest for one in stored] == list(map(digest, before))
        assert {(one.erased.by, one.erased.at_ms) for one in stored} == {(order.by, order.at_ms)}
        assert {one.verdict for one in stored} == {Verdict.OK}
        assert here.node.replica.tree.mark_at(upto) == mark, "proofs stay what they were"
        assert not await here.eraser.look()


async def test_a_replica_with_erased_records_proves_them_and_is_opened_again(tmp_path):
    async with a_place(tmp_path) as here:
        secret = await here.ended()
        await here.forget(secret)
        await here.archive()
        assert await here.eraser.look()
        replica = Replica(here.path, mesh=here.mesh.mesh, read_only=True)
        here.mesh.stack.callback(replica.close)
        upto = replica.cursor.seq
        assert replica.tree.mark_at(upto) == here.archiver.node.replica.tree.mark_at(upto)
        size = replica.tree.size_at(upto)
        for stored in replica.lane_records(job_key(KIND, secret.id)):
            leaf = replica.tree.size_at(stored.record.seq) - 1
            (row,) = replica.tree.rows(leaf, 1)
            path = [bytes.fromhex(one) for one in replica.tree.inclusion(stored.record.seq, size)]
            hashed = merkle.leaf_hash(leaf_of_row(row))
            assert merkle.root_from_inclusion(leaf, size, hashed, path) == replica.tree.root_at(
                size
            )
        with pytest.raises(Rejected, match="were erased by did:key:") as caught:
            await assembled(ReplicaSource(replica), job_key(KIND, secret.id))
        assert caught.value.reason == "erased"


async def test_what_is_forgotten_after_its_archive_goes_at_once(tmp_path):
    async with a_place(tmp_path) as here:
        secret = await here.ended()
        await here.archive()
        assert not await here.eraser.look()
        await here.forget(secret)
        assert await here.eraser.look() == 2
        assert not here.on_disk()


async def test_a_job_of_the_same_id_that_begins_behind_the_order_stays(tmp_path):
    async with a_place(tmp_path) as here:
        secret = await here.ended()
        await here.archive()
        await here.forget(secret)
        again = await submitted(here.session, SECRET)
        assert (again.id, again.is_new) == (secret.id, True)
        await here.sync()
        assert await here.eraser.look() == 2
        assert [bool(one) for one in here.payloads(secret)] == [False, False, True]
        await end(here.session, again.id)
        await here.archive()
        assert not await here.eraser.look()
        assert [bool(one) for one in here.payloads(secret)] == [False, False, True, True]


async def test_what_somebody_waits_for_stays_until_the_wait_is_over(tmp_path):
    async with a_place(tmp_path) as here:
        first, secret = (
            await submitted(here.session, "first"),
            await submitted(here.session, SECRET),
        )
        named = ((KIND, first.id), (KIND, secret.id))
        waiting = await submitted(here.session, "waiting", after=named, after_any_outcome=True)
        await end(here.session, secret.id)
        await here.forget(secret)
        await here.archive()
        assert not await here.eraser.look()
        await end(here.session, waiting.id)
        await here.sync()
        assert await here.eraser.look() == 2


async def test_a_job_that_may_still_have_replicas_stays(tmp_path):
    async with a_place(tmp_path) as here:
        content = manifest.with_nonce(
            manifest.author({"command": ["true", SECRET], "timeout": 30}), "0" * 32, "random"
        )
        body = ScheduleBody(kind=KIND, manifest=content, replicas=3, quorum=2)
        job = await submission.submit(here.session, body)
        await end(here.session, job.id)
        await here.forget(job)
        await here.archive()
        assert not await here.eraser.look()
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        assert await here.eraser.look() == 2


async def test_a_job_whose_refused_schedule_may_have_replicas_stays(tmp_path):
    """A replica names the schedule that it comes from, whatever the verdict on it was."""
    async with a_place(tmp_path) as here:
        job = await here.ended()
        view = await here.session.read_lane(KIND, job.id)
        body = replace(view.submitted_with, replicas=3, quorum=2)
        draft = here.session.draft(JobSchedule, body, prev=view.lane.tails[0])
        await here.session.log.append(
            draft.subject, draft.payload, message_id=draft.op_id, expected_last=view.lane.tails[0]
        )
        await here.sync()
        (refused,) = [one for one in here.verdicts(job) if one is not Verdict.OK]
        assert refused is not Verdict.MALFORMED
        await here.forget(job)
        await here.archive()
        assert not await here.eraser.look()
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        assert await here.eraser.look() == 3


async def test_errors_that_are_found_by_their_words_go_too(tmp_path):
    async with a_place(tmp_path) as here:
        secret = await here.ended()
        here.node.replica.texts.put([(secret.seq, f"no file {SECRET}")])
        await here.forget(secret)
        await here.archive()
        assert await here.eraser.look()
        assert not here.on_disk()
        assert not here.on_disk("somebody")


async def test_what_people_were_asked_goes_too_and_it_stays_known_as_a_question(tmp_path):
    async with a_place(tmp_path) as here:
        terms = QuestionTerms.of(SECRET, kind=KIND, choices=(SECRET, "no"))
        nonce = NonceInput(nonce="0" * 32, origin="random")
        job = await submission.submit(here.session, terms.body(nonce, here.session.wall.now_ms()))
        await end(here.session, job.id)
        await here.sync()
        await here.forget(job)
        assert not await here.eraser.look()
        assert here.on_disk()
        await here.archive()
        assert await here.eraser.look() == 2
        assert not here.on_disk()
        kept = here.node.replica.ask(ReplicaJobs).job(KIND, job.id)
        assert (kept.state.value, kept.question.text) == ("aborted", "forgotten")


async def test_words_that_a_crash_left_in_the_index_go_when_it_begins_again(tmp_path):
    async with a_place(tmp_path) as here:
        texts = here.node.replica.texts
        texts.put([(number, f"no file of guest {number}") for number in range(1, 5_000)])
        texts.put([(9_999, f"no file {SECRET}")])
        assert here.on_disk("somebody")
        with here.node.replica.ask(ReplicaErasures).zeros():
            texts.erase([9_999])
        assert here.on_disk("somebody"), "as a word of the index"
        await here.forget(await here.ended("another"))
        assert not await RecordEraser(here.node).look()
        assert not here.on_disk("somebody")
        assert texts.has(4_999)


@pytest.mark.parametrize("setting", [0, 1, 2])
async def test_an_error_leaves_every_file_before_the_records_do(tmp_path, setting):
    async with a_place(tmp_path) as here:
        secret = await here.ended("what")
        db = here.node.replica._db
        db.execute(f"pragma secure_delete = {['off', 'on', 'fast'][setting]}")
        here.node.replica.texts.put([(secret.seq, f"no file {SECRET}")])
        await here.forget(secret)
        assert here.on_disk()
        assert not await here.eraser.look(), "the records stay"
        assert not here.on_disk()
        assert db.execute("pragma secure_delete").fetchone() == (setting,), "as it was"
        assert not db.in_transaction


async def test_the_service_follows_orders_and_archives_by_itself(tmp_path):
    async with a_place(tmp_path) as here:
        secret = await here.ended()
        running = asyncio.ensure_future(RecordEraser(here.node).run())
        here.mesh.stack.callback(running.cancel)
        await here.forget(secret)
        await asyncio.sleep(60)
        assert all(here.payloads(secret))
        await here.archive()
        await asyncio.sleep(60)
        assert not any(here.payloads(secret))


async def test_a_newcomer_that_begins_with_a_snapshot_forgets_too(tmp_path):
    async with a_place(tmp_path) as here:
        kept = manifest.author({"command": ["true", SECRET], "timeout": 30})  # asked for again
        job = await submission.submit(here.session, ScheduleBody(kind=KIND, manifest=kept))
        await end(here.session, job.id)
        await here.forget(job)
        await here.ended("gone")
        await here.archive()
        newcomer = await here.mesh.node(caretaking=False)
        assert newcomer.replica.tree.base > 0, "it began with a snapshot"
        eraser = RecordEraser(newcomer)
        assert not await eraser.look()
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        last = await here.session.log.last()
        await newcomer.reached(last.seq)
        assert await eraser.look() == 2


async def test_the_order_leaves_the_log_after_its_job(tmp_path):
    async with a_place(tmp_path) as here:
        job = await here.ended()
        await here.forget(job)
        key = erasure_key(KIND, job.id)
        assert len((await here.session.read(key)).history) == 1
        await here.archive()
        assert len((await here.session.read(key)).history) == 1
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        assert not (await here.session.read(key)).history


async def test_the_order_stays_as_long_as_its_job_does(tmp_path):
    """Whoever begins with the snapshot is to forget the job, too, when it ends."""
    async with a_place(tmp_path) as here:
        job = await submitted(here.session, SECRET)
        await here.forget(job)
        key = erasure_key(KIND, job.id)
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        assert len((await here.session.read(key)).history) == 1
        await end(here.session, job.id)
        await here.sync()
        await asyncio.sleep(31 * 24 * HOUR_S)
        await here.archive()
        await here.archive()
        assert not (await here.session.read(key)).history
