"""The NATS engine, on a real server, against the suite that every engine passes.

One server is shared by this file's tests, each with a mesh of its own. Tests that hurt the server
get another, and reach it through a small proxy, so that a line can be cut from outside.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.ports import Engine
from antiphon.testing import engine_suite as suite
from tests.engines.nats.harness import until
from tests.local_server import shared_server

LOAN_S = 30.0

pytestmark = pytest.mark.nats


class Line:
    """A TCP proxy that carries one engine and can be cut."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server
        self.port = 0
        self.carrying: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self.listener = await asyncio.start_server(self.accept, "127.0.0.1", self.port)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.server.port)
        except OSError:
            writer.close()
            return
        self.carrying |= {writer, there[1]}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(carry(reader, there[1]))
                group.create_task(carry(there[0], writer))
        finally:
            self.carrying -= {writer, there[1]}

    def cut(self) -> None:
        for writer in self.carrying:
            writer.transport.abort()

    async def close(self) -> None:
        self.listener.close()
        self.cut()
        while self.carrying:
            await asyncio.sleep(0.01)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class SharedHarness:
    """Straight to the shared server, which nobody may hurt."""

    def __init__(self, server: LocalServer) -> None:
        self.server = server

    async def connect(
        self, mesh: str, *, create: bool = True, loan_s: float | None = None
    ) -> Engine:
        return await self.connect_to(self.server.port, mesh, create, loan_s)

    async def connect_to(
        self, port: int, mesh: str, create: bool, loan_s: float | None
    ) -> NatsEngine:
        return await NatsEngine.connect(
            f"nats://127.0.0.1:{port}",
            mesh,
            login=self.server.login,
            create=create,
            loan_s=LOAN_S if loan_s is None else loan_s,
        )

    async def kill_server(self) -> None:
        raise AssertionError("ask for a server of your own")

    restart_server = keep_copy = restore_older = kill_server

    def stalled_server(self) -> None:
        raise AssertionError("ask for a server of your own")

    async def sever(self, engine: Engine) -> None:
        raise AssertionError("ask for a server of your own")


def has_stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads)


class OwnHarness(SharedHarness):
    """A server and lines of its own."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.lines: dict[Engine, Line] = {}
        self.copy = server.directory / "copy"

    async def connect(
        self, mesh: str, *, create: bool = True, loan_s: float | None = None
    ) -> Engine:
        line = Line(self.server)
        await line.open()
        try:
            engine = await self.connect_to(line.port, mesh, create, loan_s)
        except BaseException:
            await line.close()
            raise
        self.lines[engine] = line
        return engine

    async def close(self) -> None:
        for line in self.lines.values():
            await line.close()

    async def kill_server(self) -> None:
        self.server.kill()
        await self.close()  # a dead server refuses connections, and so must the lines

    async def restart_server(self) -> None:
        await self.server.start()
        for line in self.lines.values():
            await line.open()

    @asynccontextmanager
    async def stalled_server(self) -> AsyncIterator[None]:
        pid = self.server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: has_stopped(pid))  # its threads stop one after another
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    async def sever(self, engine: Engine) -> None:
        self.lines[engine].cut()

    async def keep_copy(self) -> None:
        await self.swap(self.server.store, self.copy)

    async def restore_older(self) -> None:
        await self.swap(self.copy, self.server.store)

    async def swap(self, source: Path, target: Path) -> None:
        await self.kill_server()
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        await self.restart_server()


@asynccontextmanager
async def nats(*, own_server: bool) -> AsyncIterator[suite.Harness]:
    if not own_server:
        yield SharedHarness(shared_server())
        return
    async with LocalServer() as server:
        harness = OwnHarness(server)
        try:
            yield harness
        finally:
            await harness.close()


class TestAppend(suite.AppendSuite):
    harness = staticmethod(nats)

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
    harness = staticmethod(nats)


class TestMessageIds(suite.MessageIdSuite):
    harness = staticmethod(nats)


class TestRead(suite.ReadSuite):
    harness = staticmethod(nats)


class TestLanes(suite.LaneSuite):
    harness = staticmethod(nats)


class TestManyLanes(suite.ManyLanesSuite):
    harness = staticmethod(nats)


class TestHints(suite.HintSuite):
    harness = staticmethod(nats)


class TestConfirm(suite.ConfirmSuite):
    harness = staticmethod(nats)


class TestPurge(suite.PurgeSuite):
    harness = staticmethod(nats)


class TestFollow(suite.FollowSuite):
    harness = staticmethod(nats)


class TestQueues(suite.QueueSuite):
    harness = staticmethod(nats)

    @pytest.mark.req("G11")
    async def test_each_announcement_goes_to_one_member(self) -> None:
        await super().test_each_announcement_goes_to_one_member()


class TestSettling(suite.SettleSuite):
    harness = staticmethod(nats)


class TestLeases(suite.LeaseSuite):
    harness = staticmethod(nats)


class TestMessages(suite.MessageSuite):
    harness = staticmethod(nats)


class TestBus(suite.BusSuite):
    harness = staticmethod(nats)


class TestBlobs(suite.BlobSuite):
    harness = staticmethod(nats)


class TestLife(suite.LifeSuite):
    harness = staticmethod(nats)

    @pytest.mark.req("S3")
    async def test_many_nodes_may_bootstrap_a_mesh_at_once(self) -> None:
        await super().test_many_nodes_may_bootstrap_a_mesh_at_once()

    @pytest.mark.req("S2")
    async def test_connections_share_everything_and_none_is_special(self) -> None:
        await super().test_connections_share_everything_and_none_is_special()


class TestOutages(suite.OutageSuite):
    harness = staticmethod(nats)


class TestRestore(suite.RestoreSuite):
    harness = staticmethod(nats)
