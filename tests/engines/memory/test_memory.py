"""The memory engine against the suite that every engine passes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.engines.memory.server import LOAN_S, MeshImage
from antiphon.ports import Engine
from antiphon.testing import engine_suite as suite
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import VirtualLoop

BACK_S = 0.05

pytestmark = pytest.mark.virtual_time


class MemoryHarness:
    """A server of its own for each test: it costs nothing."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.server = MemoryServer(HostClock(loop, epoch_ms=time.time_ns() // 1_000_000))
        self.copy: dict[str, MeshImage] = {}
        self.engines: list[MemoryEngine] = []

    async def connect(
        self, mesh: str, *, create: bool = True, loan_s: float | None = None
    ) -> Engine:
        loan_s = LOAN_S if loan_s is None else loan_s
        engine = MemoryEngine(self.server, mesh, create=create, loan_s=loan_s)
        self.engines.append(engine)
        return engine

    async def kill_server(self) -> None:
        self.server.kill()

    async def restart_server(self) -> None:
        self.server.start()

    @asynccontextmanager
    async def stalled_server(self) -> AsyncIterator[None]:
        for engine in self.engines:
            engine.pause()
        try:
            yield
        finally:
            for engine in self.engines:
                engine.resume()

    async def sever(self, engine: Engine) -> None:
        assert isinstance(engine, MemoryEngine)
        engine.sever()
        asyncio.get_running_loop().call_later(BACK_S, engine.heal)

    async def keep_copy(self) -> None:
        self.copy = self.server.snapshot()

    async def restore_older(self) -> None:
        self.server.kill()
        self.server.restore(self.copy)
        self.server.start()


@asynccontextmanager
async def memory(*, own_server: bool) -> AsyncIterator[suite.Harness]:
    yield MemoryHarness()


class TestAppend(suite.AppendSuite):
    harness = staticmethod(memory)

    @pytest.mark.req("P5")
    async def test_compare_and_set_against_nothing_succeeds_once(self) -> None:
        await super().test_compare_and_set_against_nothing_succeeds_once()

    @pytest.mark.req("P5")
    async def test_of_racing_appenders_exactly_one_wins(self) -> None:
        await super().test_of_racing_appenders_exactly_one_wins()

    @pytest.mark.req("S12")
    async def test_a_stored_record_never_changes(self) -> None:
        await super().test_a_stored_record_never_changes()


class TestAppendMany(suite.AppendManySuite):
    harness = staticmethod(memory)


class TestMessageIds(suite.MessageIdSuite):
    harness = staticmethod(memory)


class TestRead(suite.ReadSuite):
    harness = staticmethod(memory)


class TestLanes(suite.LaneSuite):
    harness = staticmethod(memory)


class TestManyLanes(suite.ManyLanesSuite):
    harness = staticmethod(memory)


class TestHints(suite.HintSuite):
    harness = staticmethod(memory)


class TestConfirm(suite.ConfirmSuite):
    harness = staticmethod(memory)


class TestPurge(suite.PurgeSuite):
    harness = staticmethod(memory)


class TestFollow(suite.FollowSuite):
    harness = staticmethod(memory)


class TestQueues(suite.QueueSuite):
    harness = staticmethod(memory)

    @pytest.mark.req("G11")
    async def test_each_announcement_goes_to_one_member(self) -> None:
        await super().test_each_announcement_goes_to_one_member()


class TestSettling(suite.SettleSuite):
    harness = staticmethod(memory)


class TestLeases(suite.LeaseSuite):
    harness = staticmethod(memory)


class TestMessages(suite.MessageSuite):
    harness = staticmethod(memory)


class TestBus(suite.BusSuite):
    harness = staticmethod(memory)


class TestBlobs(suite.BlobSuite):
    harness = staticmethod(memory)


class TestLife(suite.LifeSuite):
    harness = staticmethod(memory)

    @pytest.mark.req("S3")
    async def test_many_nodes_may_bootstrap_a_mesh_at_once(self) -> None:
        await super().test_many_nodes_may_bootstrap_a_mesh_at_once()

    @pytest.mark.req("S2")
    async def test_connections_share_everything_and_none_is_special(self) -> None:
        await super().test_connections_share_everything_and_none_is_special()


class TestOutages(suite.OutageSuite):
    harness = staticmethod(memory)


class TestRestore(suite.RestoreSuite):
    harness = staticmethod(memory)
