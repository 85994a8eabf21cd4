"""Runs that go on without the engine: what they make waits on disk, in order, before their end."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon import After, JobContext, Mesh
from antiphon.core.families.jobs.ops import JobArtifact, Retry
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Unavailable
from antiphon.runtime.artifacts import waiting_blobs
from antiphon.runtime.artifacts.store import Artifacts
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.stream_parts import parts_of
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.outbox import outbox_store, worker_outbox
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.runtime.outbox.worker_outbox import WorkerOutbox
from antiphon.sdk.outbox.namespace import LocalOutbox
from tests.runtime.inference.exchanges import calls_a_model
from tests.runtime.meshes import CALM, KIND, QUICK, a_mesh, call, eventually, ops_on_lane

ON = HandlerOptions(on_disconnect="continue")
LEASE_S = QUICK.lease_ms / 1000
LARGE = "x" * 100_000

pytestmark = [pytest.mark.virtual_time, pytest.mark.req("P12")]

plain = Mesh.open(engine="memory")


@plain.task("test.part")
async def part(text: str) -> None:
    """Only to make calls."""


class Away:
    """A worker whose engine goes away while its handler runs, and comes back."""

    def __init__(self, mesh, folder) -> None:
        self.mesh, self.store = mesh, OutboxStore(folder)
        self.began, self.done = asyncio.Event(), asyncio.Event()
        self.computed: list[str] = []

    async def start(self, handler, rest=(), drain_s=0.1, **how):
        self.caller = (await self.mesh.connection()).session
        self.connection = await self.mesh.connection()
        self.worker = await self.mesh.worker(
            handler,
            connection=self.connection,
            how=ON,
            outbox=self.store.folder,
            drain_s=drain_s,
        )
        self.job = await call(self.caller, *rest, **how)
        await self.began.wait()

    def leave(self) -> None:
        """The handler cuts its own line."""
        self.connection.session.engine.sever()
        self.began.set()

    async def upper(self, word: str) -> str:
        self.computed.append(word)
        return word.upper()

    async def back(self):
        self.connection.session.engine.heal()
        return await submission.wait_for_end(self.caller, KIND, self.job.id)

    async def told(self) -> list[str]:
        """What was accepted on the job's lane, in order."""
        view = await self.caller.read_lane(KIND, self.job.id)
        return [
            op.body.name if isinstance(op, JobArtifact) else op.type_name().removeprefix("job.")
            for op in (one.opened.op for one in view.history if one.verdict is Verdict.OK)
        ]

    def waiting(self) -> list[str]:
        return [one.what.words.rpartition(" of ")[0] or one.what.words for one in self.items()]

    def items(self):
        return [one for one in self.store.items() if one.is_tentative]


async def test_a_step_is_used_at_once_and_stored_before_the_end_once_the_engine_is_back(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            words = [await ctx.step(one, away.upper, one) for one in ("a", "b", "a2")]
            away.done.set()
            return "".join(words)

        await away.start(work)
        await eventually(away.done.is_set)
        assert away.waiting()[:3] == [f"store the step '{one}'" for one in ("a", "b", "a2")]
        assert "a" not in await away.told(), "nobody is told of what waits"
        await eventually(lambda: len(away.items()) == 4)
        await asyncio.sleep(LEASE_S / 2)
        ended = await away.back()
        assert (ended.outputs[0].text, ended.job.attempts) == ('"ABA2"', 0)
        assert [one for one in await away.told() if one != "claim"] == [
            "schedule",
            "a",
            "b",
            "a2",
            "complete",
        ]
        await eventually(lambda: away.worker.done == 1)
        assert away.store.items() == [], "the worker knows: nobody else has to be told"


async def test_a_run_that_is_connected_again_writes_behind_what_waited(tmp_path):
    async with a_mesh("memory", CALM) as mesh:
        away, drained = Away(mesh, tmp_path), asyncio.Event()

        async def work(ctx: JobContext) -> str:
            first = await ctx.step("before", away.upper, "a")
            away.leave()
            second = await ctx.step("away", away.upper, "b")
            away.done.set()
            await drained.wait()
            return first + second + await ctx.step("after", away.upper, "c")

        await away.start(work)
        await eventually(away.done.is_set)
        assert away.waiting() == ["store the step 'away'"]
        away.connection.session.engine.heal()
        await eventually(lambda: not away.items())
        drained.set()
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert ended.outputs[0].text == '"ABC"'
        assert [one for one in await away.told() if one != "claim"][1:-1] == [
            "before",
            "away",
            "after",
        ]


async def test_large_steps_and_results_wait_with_their_bytes(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            first = await ctx.step("large", away.upper, LARGE)
            again = await ctx.step("large", away.upper, LARGE)
            return first + again

        await away.start(work)
        await eventually(lambda: len(away.items()) == 2)
        assert away.store.blobs.size > 300_000
        ended = await away.back()
        store = Artifacts(away.caller.engine.blobs)
        result = await store.read(ended.outputs[0], max_bytes=10**6)
        assert result.decode() == f'"{2 * LARGE.upper()}"'
        assert away.computed == [LARGE], "of the same run it is known"
        await eventually(lambda: away.store.blobs.size == 0)


async def test_parts_of_a_stream_wait_in_order_and_in_few_groups(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def counting(upto: int) -> AsyncIterator[int]:
            for number in range(upto):
                yield number
                if number == 2:
                    away.leave()
                await asyncio.sleep(1)

        await away.start(counting, (24,))
        await eventually(lambda: "complete" in "".join(away.waiting()))
        assert len(away.items()) < 6
        ended = await away.back()
        assert ended.outputs[0].text == "24"
        store = Artifacts(away.caller.engine.blobs)
        parts = parts_of(away.caller, KIND, away.job.id, lambda: store)
        assert [int(bytes(one)) async for one in parts] == list(range(24))


async def test_if_somebody_took_over_that_is_told_once_and_nothing_of_the_run_counts(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        node, away = await mesh.node(), Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            words = [await ctx.step(one, away.upper, one) for one in ("a", "b")]
            await asyncio.sleep(3 * LEASE_S)
            return "".join(words)

        async def theirs() -> str:
            return "theirs"

        await away.start(work)
        await mesh.worker(theirs)
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert ended.outputs[0].text == '"theirs"'
        await eventually(lambda: len(away.items()) == 3)
        away.connection.session.engine.heal()
        await eventually(lambda: away.worker.busy == 0)
        (told,) = away.store.items()
        words = "another worker took over (fence), so nothing of this run counts"
        assert (told.state, told.why) == ("dropped", words)
        await node.reached((await away.caller.read_lane(KIND, away.job.id)).lane.job_tail)
        accepted = [op for op, verdict in ops_on_lane(node, away.job.id) if verdict == "ok"]
        assert "job.artifact" not in accepted
        assert accepted.count("job.complete") == 1


async def test_a_run_goes_on_when_nobody_can_read_any_more_that_the_mesh_has_it(
    tmp_path, monkeypatch
):
    """Of what ended and nobody asked for, few files are kept."""
    monkeypatch.setattr(outbox_store, "MOST_UNTOLD", 1)
    async with a_mesh("memory", CALM) as mesh:
        away, drained = Away(mesh, tmp_path), asyncio.Event()

        async def work(ctx: JobContext) -> str:
            away.leave()
            words = [await ctx.step(one, away.upper, one) for one in ("a", "b", "c")]
            away.done.set()
            await drained.wait()
            return "".join(words)

        await away.start(work)
        await eventually(away.done.is_set)
        away.connection.session.engine.heal()
        await eventually(lambda: not away.items())
        await asyncio.sleep(1)
        assert away.worker.busy == 1, "it was not cancelled"
        drained.set()
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert (ended.outputs[0].text, ended.job.attempts) == ('"ABC"', 0)
        assert away.computed == ["a", "b", "c"]


async def test_what_another_sender_sent_and_told_is_not_taken_for_dropped(tmp_path):
    async with a_mesh("memory", CALM) as mesh:
        away, drained = Away(mesh, tmp_path), asyncio.Event()

        async def work(ctx: JobContext) -> str:
            away.leave()
            word = await ctx.step("a", away.upper, "a")
            away.done.set()
            await drained.wait()
            return word

        await away.start(work)
        await eventually(away.done.is_set)
        away.worker._deliveries.outbox.close()  # it waits while another one sends
        session, worker_s = away.connection.session, away.worker._deliveries.outbox
        session.engine.heal()
        await WorkerOutbox(away.store, session).send()
        for one in away.store.items():
            away.store.remove(one)  # and a person was told
        await worker_s.start(away.worker._spawn)
        await worker_s._tell()
        drained.set()
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert (ended.outputs[0].text, away.computed) == ('"A"', ["a"])


async def test_a_worker_outlives_a_disk_that_refuses_for_a_while(tmp_path, monkeypatch):
    async with a_mesh("memory", CALM) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            return await ctx.step("a", away.upper, "a")

        def refused(*_, **__):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        await away.start(work)
        await eventually(lambda: len(away.items()) == 2)
        with monkeypatch.context() as patch:
            for name in ("read_bytes", "unlink"):
                patch.setattr(Path, name, refused)
            away.connection.session.engine.heal()
            await asyncio.sleep(5)
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert ended.outputs[0].text == '"A"'
        await eventually(lambda: away.worker.done == 1)


async def test_a_run_is_stopped_when_what_it_made_is_refused(tmp_path):
    """It finds that out while its handler still runs."""
    async with a_mesh("memory", QUICK) as mesh:
        await mesh.node()
        away, stopped = Away(mesh, tmp_path), asyncio.Event()

        async def work(ctx: JobContext) -> str:
            away.leave()
            await ctx.step("a", away.upper, "a")
            away.done.set()
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                stopped.set()
                raise
            return "mine"

        async def theirs() -> str:
            return "theirs"

        await away.start(work)
        await eventually(away.done.is_set)
        await mesh.worker(theirs)
        await submission.wait_for_end(away.caller, KIND, away.job.id)
        away.connection.session.engine.heal()
        await eventually(stopped.is_set)
        await eventually(lambda: [one.state for one in away.store.items()] == ["dropped"])


async def test_who_drops_a_step_drops_what_its_run_made_after_it(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        await mesh.node()
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            if not away.began.is_set():
                away.leave()
            return "".join([await ctx.step(one, away.upper, one) for one in "abc"])

        await away.start(work)
        await eventually(lambda: len(away.items()) == 4)
        second = away.items()[1]
        LocalOutbox(away.store).drop(second.id)
        assert away.waiting() == ["store the step 'a'"]
        await eventually(lambda: away.worker.held == 0)
        ended = await away.back()
        assert ended.outputs[0].text == '"ABC"'
        assert away.computed[:3] == ["a", "b", "c"]
        assert away.computed[-2:] == ["b", "c"], "they were computed again"
        told = [one for one in away.store.items() if not one.is_tentative]
        assert [(one.id, one.state) for one in told][:1] == [(second.id, "dropped")]


async def test_steps_outlive_their_worker_and_the_next_run_has_them(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            if not away.began.is_set():
                away.leave()
                await ctx.step("a", away.upper, "a")
                away.done.set()
                await asyncio.sleep(10_000)
            return await ctx.step("a", away.upper, "a")

        await away.start(work)
        await eventually(away.done.is_set)
        away.worker._leases.close()  # a dead process renews nothing, and gives nothing back
        away.worker._deliveries.outbox.close()
        away.worker.paused.add("sleep")
        again = OutboxStore(tmp_path)
        assert [one.state for one in again.items()] == ["waiting"]
        away.connection.session.engine.heal()
        await mesh.worker(work, connection=away.connection, how=ON, outbox=tmp_path)
        await mesh.node()
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert (ended.outputs[0].text, away.computed) == ('"A"', ["a"])


async def test_without_room_in_the_outbox_a_step_waits_for_the_engine(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_outbox, "LEFT_FREE", 2)
    monkeypatch.setattr(outbox_store, "MOST_ITEMS", 4)
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            return "".join([await ctx.step(one, away.upper, one) for one in "abcd"])

        await away.start(work)
        await asyncio.sleep(10)
        assert (len(away.items()), away.computed) == (2, ["a", "b", "c"])
        ended = await away.back()
        assert ended.outputs[0].text == '"ABCD"'
        assert [one for one in await away.told() if len(one) == 1] == list("abcd")


async def test_a_job_that_is_given_back_without_the_engine_is_free_as_soon_as_it_is_back(tmp_path):
    async with a_mesh("memory", CALM) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            if not away.began.is_set():
                ctx.save_with(lambda: b"half")
                away.leave()
                await asyncio.sleep(10_000)
            return (ctx.last_checkpoint or b"").decode()

        await away.start(work)
        away.worker.drain()
        await eventually(lambda: away.worker.held == 0)
        (kept,) = away.items()
        assert kept.what.words == f"give back {KIND} {away.job.id[:8]}"
        await mesh.node()
        away.connection.session.engine.heal()
        await mesh.worker(work, connection=away.connection, how=ON, outbox=tmp_path)
        ended = await submission.wait_for_end(away.caller, KIND, away.job.id)
        assert ended.outputs[0].text == '"half"', "with what it had saved"
        assert "expire" not in await away.told(), "nobody had to wait for the end of the lease"


async def test_a_question_waits_for_the_engine_and_costs_no_attempt(tmp_path):
    async with a_mesh("memory", QUICK) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            return await ctx.ask("deploy?", kind="approve.deploy", choices=("yes", "no"))

        await away.start(work, retry=Retry(attempts=1))
        await asyncio.sleep(20)
        assert away.items() == [], "others are asked by it: it does not wait in the outbox"
        away.connection.session.engine.heal()
        await eventually(lambda: not away.worker.held)
        assert (await away.told())[-1] == "yield"
        job = (await away.caller.read_lane(KIND, away.job.id)).lane.job
        assert (job.attempts, [kind for kind, _ in job.children]) == (0, ["approve.deploy"])
        assert (await away.caller.read_lane(*job.children[0])).lane.job is not None


async def test_the_arguments_of_children_are_stored_before_the_jobs_that_name_them(tmp_path):
    async with a_mesh("memory", CALM) as mesh:
        away, arrived = Away(mesh, tmp_path), []

        async def work(ctx: JobContext) -> str:
            if ctx.results(part) is not None:
                return "continued"
            if not away.began.is_set():
                away.leave()
            raise After([part.bind(LARGE)])

        async def theirs(text: str) -> None:
            arrived.append(text)

        await mesh.node(connection=await mesh.connection(mesh.owner))
        await mesh.worker(theirs, kind="test.part")
        await away.start(work)
        await asyncio.sleep(5)
        assert (away.items(), away.store.blobs.size > len(LARGE)) == ([], True)
        ended = await away.back()
        assert (ended.outputs[0].text, arrived) == ('"continued"', [LARGE])
        assert away.store.blobs.size == 0, "what the log has is kept here no more"


async def test_a_disk_that_refuses_to_tidy_up_fails_no_job(tmp_path, monkeypatch):
    async with a_mesh("memory", CALM) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            if ctx.results(part) is not None:
                return "continued"
            if not away.began.is_set():
                away.leave()
            raise After([part.bind(LARGE)])

        async def theirs(text: str) -> None:
            pass

        def refused(*_):
            raise Unavailable("the outbox cannot be used")

        monkeypatch.setattr(OutboxStore, "forget_blobs", refused)
        await mesh.node(connection=await mesh.connection(mesh.owner))
        await mesh.worker(theirs, kind="test.part")
        await away.start(work)
        ended = await away.back()
        assert (ended.outputs[0].text, ended.job.attempts) == ('"continued"', 0)


async def test_what_a_step_names_waits_as_long_as_the_step_does(tmp_path, monkeypatch):
    """There is no room in the outbox for the step, so nothing there names its content."""
    monkeypatch.setattr(worker_outbox, "LEFT_FREE", 2)
    monkeypatch.setattr(outbox_store, "MOST_ITEMS", 3)
    async with a_mesh("memory", CALM) as mesh:
        away = Away(mesh, tmp_path)

        async def work(ctx: JobContext) -> str:
            away.leave()
            return (await ctx.step("a", away.upper, "a")) + await ctx.step("b", away.upper, LARGE)

        await away.start(work)
        await asyncio.sleep(5)
        assert len(away.items()) == 1
        (content,) = (tmp_path / outbox_store.BLOBS).iterdir()
        long_ago_s = content.stat().st_mtime - 2 * waiting_blobs.UNNAMED_S
        os.utime(content, (long_ago_s, long_ago_s))
        await asyncio.sleep(10)
        away.store.prune()
        assert content.exists()
        ended = await away.back()
        store = Artifacts(away.caller.engine.blobs)
        result = await store.read(ended.outputs[0], max_bytes=10**6)
        assert result.decode() == f'"A{LARGE.upper()}"'


async def test_snapshots_of_model_calls_wait_before_the_completion_that_names_them(tmp_path):
    async with a_mesh("memory", replace(QUICK, audit_inference=True)) as mesh:
        away = Away(mesh, tmp_path)

        async def work() -> str:
            calls_a_model("before")
            away.leave()
            calls_a_model("away")
            await asyncio.sleep(2 * LEASE_S)
            return "asked"

        await away.start(work)
        await eventually(lambda: len(away.items()) == 3)
        assert "snapshot" not in " ".join(await away.told())
        ended = await away.back()
        assert (ended.outputs[0].text, len(ended.outputs)) == ('"asked"', 3)
        store = Artifacts(away.caller.engine.blobs)
        for one in ended.outputs[1:]:
            assert await store.read(one, max_bytes=10**6)
