"""A reader of every kind passes the suite that every engine passes, and one of few on a cluster."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from antiphon.core.authority.scope import EVERYTHING
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import subjects
from antiphon.engines.nats import NatsEngine, Reader, ReadService
from antiphon.engines.nats.log.log import NatsLog
from antiphon.testing import engine_suite as suite
from antiphon.testing.engine_suite.harness import (
    collect,
    job_id,
    new_mesh,
    persist,
    seqs,
    whole_lane,
)
from tests.engines.nats.log.test_cluster import bootstrap, join, three_servers
from tests.job_scopes import BRANCHES, job_scope
from tests.local_server import shared_server

pytestmark = pytest.mark.nats

READER = Reader("UREADER", EVERYTHING, BRANCHES, PROTOCOL.rights)


class GatedHarness:
    """Engines that write with all rights, read within a scope, and share a gate."""

    def __init__(self):
        self.server = shared_server()
        self.owner = None

    async def connect(self, mesh, *, create=True, loan_s=None):
        if self.owner is None:
            self.owner = await NatsEngine.connect(
                self.server.url, mesh, create=create, login=self.server.login
            )
            gate = ReadService(self.owner, lambda _: EVERYTHING, BRANCHES)
            self.serving = asyncio.ensure_future(gate.run())
            await gate.ready.wait()
        engine = await NatsEngine.connect(
            self.server.url,
            mesh,
            create=create,
            reader=READER,
            inbox_prefix=f"_I.{READER.user}",
            login=self.server.login,
        )
        engine.log.append = partial(NatsLog.append, engine.log)
        return engine

    async def close(self):
        if self.owner is not None:
            self.serving.cancel()
            await asyncio.wait([self.serving])
            await self.owner.close()


@asynccontextmanager
async def gated(*, own_server):
    assert not own_server
    harness = GatedHarness()
    try:
        yield harness
    finally:
        await harness.close()


class TestRead(suite.ReadSuite):
    harness = staticmethod(gated)


class TestLanes(suite.LaneSuite):
    harness = staticmethod(gated)


class TestManyLanes(suite.ManyLanesSuite):
    harness = staticmethod(gated)


class TestHints(suite.HintSuite):
    harness = staticmethod(gated)


class TestConfirm(suite.ConfirmSuite):
    harness = staticmethod(gated)


class TestPurge(suite.PurgeSuite):
    harness = staticmethod(gated)


class TestFollow(suite.FollowSuite):
    harness = staticmethod(gated)


class TestAppend(suite.AppendSuite):
    harness = staticmethod(gated)


class TestAppendMany(suite.AppendManySuite):
    harness = staticmethod(gated)


class TestMessageIds(suite.MessageIdSuite):
    harness = staticmethod(gated)
    test_an_append_that_timed_out_may_be_stored = None  # stalls a server, and this one is shared


@pytest.mark.slow
async def test_a_reader_on_three_copies_misses_nothing():
    mesh, scope = new_mesh(), job_scope(reads=("render.>",))
    whats = ("jobs.job.render.a", "jobs.job.secret.b", "jobs.1.render.c", "ctl.d")
    async with three_servers() as servers:
        owner = await bootstrap(servers, mesh)
        gate = ReadService(owner, lambda _: scope, BRANCHES)
        serving = asyncio.ensure_future(gate.run())
        await gate.ready.wait()

        def put(what, after=0, name="x"):
            return persist(
                lambda: owner.log.append(
                    f"ap.{mesh}.{what}", b"x", message_id=f"{what}.{name}", expected_last=after
                )
            )

        await put("ctl.genesis")
        me = Reader("UREADER", scope, BRANCHES, PROTOCOL.rights)
        reader = await join(servers[1:], mesh, reader=me, inbox_prefix=f"_I.{me.user}")
        async with owner, reader, reader.log.follow(0) as batches:
            found = seqs(await collect(batches, 1))
            for n in range(60):
                seq = await put(f"{whats[n % 4]}.{n}")
                if n % 4 == 3:
                    control = subjects.all_control(mesh)
                    confirmed = await persist(
                        lambda: reader.log.confirm(control, after=seq - 4, upto=seq)  # noqa: B023
                    )
                    assert seqs(confirmed) == [seq]
            found += seqs(await collect(batches, 45))
            full = (await owner.log.read(0, limit=99)).records
            assert found == [one.seq for one in full if "secret" not in one.subject]
            last, lane = 0, f"jobs.job.render.lane.{job_id(1)}"
            for n in range(4):
                last = await put(lane, after=last, name=n)
            read = await persist(
                lambda: whole_lane(reader.log, job_subjects.lane(mesh, "render.lane", job_id(1)))
            )
            assert len(read) <= 4  # a copy may lag; what it shows is a beginning
            assert seqs(read) == list(range(62, 62 + len(read)))
            serving.cancel()
            await asyncio.wait([serving])
