"""Waiting for the ends of many jobs: few subscriptions, few reads, and no hint is relied on."""

import asyncio
from contextlib import contextmanager

import pytest

from antiphon.core import manifest
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.engines.nats import LocalServer
from antiphon.errors import Unavailable
from antiphon.runtime.caller import ends as ends_module
from antiphon.runtime.caller import submission
from antiphon.runtime.caller.ends import LOOK_S, Ends
from antiphon.runtime.caller.submission import may_end
from antiphon.runtime.executors.handler_call import call_text
from tests.patience import PATIENCE_S
from tests.runtime.meshes import KIND, a_mesh, call, eventually, on_both_engines


async def double(number):
    return 2 * number


async def all_of(ends: Ends) -> list[submission.Ended]:
    found = []
    async with asyncio.timeout(PATIENCE_S):
        while len(ends):
            found += await ends.next()
    return found


class Recorded:
    """The patterns that are listened on."""

    def __init__(self, session, monkeypatch, *, is_deaf: bool = False) -> None:
        self.patterns: set[str] = set()
        self.most = 0
        self.is_deaf = is_deaf
        self._really = session.log.hints
        monkeypatch.setattr(session.log, "hints", self._hints)

    @contextmanager
    def _hints(self, told):
        with self._really((lambda *_: None) if self.is_deaf else told) as hints:
            self._inner = hints
            yield self

    def add(self, pattern):
        self.patterns.add(pattern)
        self.most = max(self.most, len(self.patterns))
        return self._inner.add(pattern) and not self.is_deaf

    def remove(self, pattern):
        self.patterns.discard(pattern)
        self._inner.remove(pattern)

    def check(self):
        self._inner.check()


@on_both_engines
async def test_every_end_comes_once_whether_it_was_before_or_comes_later(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        early = [await call(caller, number) for number in range(3)]
        late = [await call(caller, number, kind="test.late") for number in range(3)]
        await mesh.worker(double)
        for one in early:
            await submission.wait_for_end(caller, KIND, one.id)
        with Ends(caller) as ends:
            for one in (*early, *late, *early):
                ends.add(one.kind, one.id)
            assert len(ends) == 6
            found = await ends.next()
            assert {one.job.kind for one in found} == {KIND}
            await mesh.worker(double, kind="test.late")
            found += await all_of(ends)
            assert sorted(one.job.id for one in found) == sorted(one.id for one in early + late)
            assert {one.job.outcome for one in found} == {"succeeded"}
            assert await ends.next() == [], "nothing is waited for"


@on_both_engines
async def test_a_job_added_before_it_is_submitted_is_heard_without_a_look(engine, monkeypatch):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session

        async def no_look(*_):
            raise AssertionError("there was nothing to look for")

        monkeypatch.setattr(caller.log, "newest", no_look)
        monkeypatch.setattr(ends_module, "LOOK_S", 1e6)
        await mesh.worker(double)
        contents = [
            manifest.author({"command": [f"@{KIND}"], "args": [call_text((n,), {})], "timeout": 30})
            for n in range(20)
        ]
        wanted = [manifest.job_id(content) for content in contents]
        with Ends(caller) as ends:
            for one in wanted:
                ends.add(KIND, one, is_new=True)
            for number in range(20):
                await call(caller, number)
            assert sorted(one.job.id for one in await all_of(ends)) == sorted(wanted)


@on_both_engines
async def test_few_jobs_have_a_subscription_each_and_many_one_per_kind(engine, monkeypatch):
    monkeypatch.setattr(ends_module, "SINGLE", 5)
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        heard = Recorded(caller, monkeypatch)
        jobs = [await call(caller, number) for number in range(8)]
        jobs += [await call(caller, number, kind="test.other") for number in range(8)]
        with Ends(caller) as ends:
            for number, one in enumerate(jobs[:5], start=1):
                ends.add(one.kind, one.id)
                assert len(heard.patterns) == number
            for one in jobs[5:]:
                ends.add(one.kind, one.id)
            assert heard.most <= 2 * 5
            assert job_subjects.job(caller.mesh, KIND, "*") in heard.patterns
            await mesh.worker(double)
            await mesh.worker(double, kind="test.other")
            assert len(await all_of(ends)) == 16
            assert heard.patterns == set()


@on_both_engines
async def test_without_any_hint_ends_are_found_by_looking_now_and_then(engine, monkeypatch):
    if engine == "nats":
        monkeypatch.setattr(ends_module, "LOOK_S", LOOK_S / 20)
    monkeypatch.setattr(ends_module, "WINDOW", 2)
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        Recorded(caller, monkeypatch, is_deaf=True)
        jobs = [await call(caller, number) for number in range(5)]
        with Ends(caller) as ends:
            for one in jobs:
                ends.add(one.kind, one.id)
            await mesh.worker(double)
            assert len(await all_of(ends)) == 5


@pytest.mark.virtual_time
async def test_a_lost_hint_delays_an_end_by_one_look_per_window(monkeypatch):
    monkeypatch.setattr(ends_module, "WINDOW", 2)
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        heard = Recorded(caller, monkeypatch)
        jobs = [await call(caller, number) for number in range(6)]
        with Ends(caller) as ends:
            for one in jobs:
                ends.add(one.kind, one.id)
            waiting = asyncio.ensure_future(all_of(ends))
            await asyncio.sleep(0.5)  # the first look is over
            heard._inner._told = lambda *_: None
            worker = await mesh.worker(double)
            await eventually(lambda: worker.done == 6)
            ended_s = asyncio.get_running_loop().time()
            assert len(await waiting) == 6
            waited_s = asyncio.get_running_loop().time() - ended_s
            assert waited_s <= 3 * 1.2 * LOOK_S


@pytest.mark.virtual_time
async def test_a_connection_that_is_lost_meanwhile_costs_no_end():
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(5)]
        with Ends(caller) as ends:
            for one in jobs:
                ends.add(one.kind, one.id)
            waiting = asyncio.ensure_future(all_of(ends))
            await asyncio.sleep(0.1)
            caller.engine.sever()
            worker = await mesh.worker(double)
            await eventually(lambda: worker.done == 5)
            assert not waiting.done()
            caller.engine.heal()
            assert len(await waiting) == 5


@pytest.mark.nats
async def test_a_server_that_is_restarted_meanwhile_costs_no_end():
    async with LocalServer() as server, a_mesh("nats") as mesh:
        mesh.server = server
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(20)]
        with Ends(caller) as ends:
            for one in jobs:
                ends.add(one.kind, one.id)
            waiting = asyncio.ensure_future(all_of(ends))
            worker = await mesh.worker(double)
            await eventually(lambda: worker.done)
            server.kill()
            await server.start()
            assert len(await waiting) == 20


@on_both_engines
async def test_a_connection_that_is_closed_ends_the_waiting(engine):
    async with a_mesh(engine) as mesh:
        caller = (await mesh.connection()).session
        job = await call(caller, 1)
        with Ends(caller) as ends:
            ends.add(job.kind, job.id)
            waiting = asyncio.ensure_future(ends.next())
            await asyncio.sleep(0.1)
            await caller.engine.close()
            with pytest.raises(Unavailable):
                async with asyncio.timeout(PATIENCE_S):
                    await waiting


@pytest.mark.virtual_time
async def test_a_log_that_cannot_be_read_while_the_engine_is_there_ends_the_waiting(monkeypatch):
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        job = await call(caller, 1)

        async def unread(*_):
            raise Unavailable("no leader")

        monkeypatch.setattr(caller.log, "newest", unread)
        with Ends(caller) as ends:
            ends.add(job.kind, job.id)
            begun_s = asyncio.get_running_loop().time()
            with pytest.raises(Unavailable, match="no leader"):
                await ends.next()
            assert asyncio.get_running_loop().time() - begun_s > ends_module.SILENT_S


@pytest.mark.virtual_time
async def test_no_job_has_a_task_and_lanes_are_read_many_at_a_time(monkeypatch):
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(300)]
        worker = await mesh.worker(double, slots=64)
        await eventually(lambda: worker.done == 300)
        reads, read_lanes, read_lane = [], caller.log.read_lanes, caller.log.read_lane

        async def counted(lanes):
            reads.append(len(lanes))
            return await read_lanes(lanes)

        def alone(*given, **how):
            reads.append(1)
            return read_lane(*given, **how)

        monkeypatch.setattr(caller.log, "read_lanes", counted)
        monkeypatch.setattr(caller.log, "read_lane", alone)
        tasks = len(asyncio.all_tasks())
        with Ends(caller) as ends:
            for one in jobs:
                ends.add(one.kind, one.id)
            while len(ends):
                await ends.next()
                assert len(asyncio.all_tasks()) <= tasks + 1, "one confirms control"
        assert reads == [100, 100, 100]


@pytest.mark.parametrize(
    "payload, expected",
    [
        (b'{"type":"job.claim"}\n{}', False),
        (b'{"body":{"type":"job.complete"},"type":"job.start"}\n{}', False),
        (b'{"type":"job.complete"}\n{}', True),
        (b'{"type":"job.yield"}\n{}', True),
        (b'{"type":"of a later protocol"}\n{}', True),
        (b'{"type":7}\n{}', True),
        (b"junk", True),
        (b"", True),
    ],
)
def test_only_a_record_that_cannot_be_an_end_is_no_reason_to_read(payload, expected):
    assert may_end(payload) is expected
