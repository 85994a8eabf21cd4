"""The HTTP engine against the member part of the suite that every engine passes.

Over real requests and answers of a node's routes, whose log is the memory engine's. What a node
checks of a record is tested in `tests/interfaces/http`; here every record is stored as it is sent.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from httpx2 import ASGITransport, AsyncBaseTransport, ConnectError, ReadError, Response

from antiphon.core.authority.scope import EVERYTHING
from antiphon.core.bus.http_request import open_request
from antiphon.core.protocol import PROTOCOL
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.http import HttpEngine, LogService, signed_client
from antiphon.engines.http.log import AGAIN_S
from antiphon.engines.http.log_protocol import Found
from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.errors import (
    LogReplaced,
    Misconfigured,
    NotPermitted,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from antiphon.guard import Guard
from antiphon.interfaces.http.door import Door
from antiphon.interfaces.http.member_routes import MemberRoutes
from antiphon.ports import Append
from antiphon.runtime.gate.member_door import Member, Stored
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.testing import engine_suite as suite
from antiphon.testing.engine_suite.harness import collect, seqs
from antiphon.testing.host_clock import HostClock
from antiphon.testing.virtual_time import VirtualLoop

pytestmark = pytest.mark.virtual_time


class PlainDoor:
    """A door that knows everybody who signs, and stores whatever comes."""

    def __init__(self, engine: MemoryEngine, wall: HostClock) -> None:
        self.engine, self.wall = engine, wall

    def identify(self, asked, header):
        now_ms = self.wall.now_ms()
        found = open_request(asked, header, mesh=self.engine.mesh, now_ms=now_ms)
        if isinstance(found, str):
            raise Rejected("not signed", reason=found)
        key, nonce = found.author, found.body.nonce
        return Member(key=key, nonce=nonce, party=key, scope=EVERYTHING, chains=None)

    def take(self, member):
        """Nothing is counted here."""

    async def store(self, _member, payload, place):
        seq = await self.engine.log.append(
            place.subject, payload, message_id=place.message_id, expected_last=place.prev
        )
        return Stored(seq=seq, verdict="")


class Line(AsyncBaseTransport):
    """The way to the node, which can be cut before or behind it."""

    def __init__(self, app) -> None:
        self.inner = ASGITransport(app=app)
        self.is_cut = self.is_silent = False
        self.asked = 0
        self.says: bytes | None = None
        """What is answered in the node's place."""

    async def handle_async_request(self, request):
        if self.is_cut:
            raise ConnectError("no route", request=request)
        self.asked += 1
        if self.says is not None:
            await asyncio.sleep(0.01)
            return Response(200, content=self.says)
        answer = await self.inner.handle_async_request(request)
        if self.is_silent:
            raise ReadError("broken", request=request)
        return answer


class HttpHarness:
    """A node for each mesh of a server."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.wall = HostClock(loop, epoch_ms=time.time_ns() // 1_000_000)
        self.server = MemoryServer(self.wall)
        self.lines: list[Line] = []
        self.nodes: list[MemoryEngine] = []

    @asynccontextmanager
    async def stalled_server(self):
        for node in self.nodes:
            node.pause()
        try:
            yield
        finally:
            for node in self.nodes:
                node.resume()

    async def connect(self, mesh, *, create=True, loan_s=None):
        node = MemoryEngine(self.server, mesh, create=create)
        log = LogService(node.log, lambda scope: sight_of(mesh, PROTOCOL.branches, scope))
        routes = MemberRoutes(PlainDoor(node, self.wall), log)
        # Work takes no virtual time: it would count as done all at once.
        self.lines.append(Line(Door(routes.routes(), Guard(work=1e6))))
        self.nodes.append(node)
        entropy = SystemEntropy()
        engine = await HttpEngine.connect(
            "http://localhost:7464",
            mesh,
            SeedKeyring(entropy.token(32)),
            wall=self.wall,
            entropy=entropy,
            transport=self.lines[-1],
        )
        engine.log.purge = node.log.purge  # the archiver's, who is none of these members
        engine.node = node
        return engine


@asynccontextmanager
async def over_http(*, own_server: bool) -> AsyncIterator[suite.Harness]:
    yield HttpHarness()


class TestAppend(suite.AppendSuite):
    harness = staticmethod(over_http)


class TestAppendMany(suite.AppendManySuite):
    harness = staticmethod(over_http)


class TestMessageIds(suite.MessageIdSuite):
    harness = staticmethod(over_http)


class TestRead(suite.ReadSuite):
    harness = staticmethod(over_http)


class TestLanes(suite.LaneSuite):
    harness = staticmethod(over_http)


class TestManyLanes(suite.ManyLanesSuite):
    harness = staticmethod(over_http)


class TestHints(suite.HintSuite):
    harness = staticmethod(over_http)


class TestConfirm(suite.ConfirmSuite):
    harness = staticmethod(over_http)


class TestFollow(suite.FollowSuite):
    harness = staticmethod(over_http)


@asynccontextmanager
async def a_site():
    harness = HttpHarness()
    site = suite.Site(harness)
    try:
        yield site, harness
    finally:
        await site.close()


async def test_a_node_that_is_away_stores_nothing_and_one_that_falls_silent_may_have():
    async with a_site() as (site, harness):
        engine = await site.connect()
        (line,) = harness.lines
        line.is_cut = True
        with pytest.raises(Unavailable) as away:
            await site.append(engine, site.job(1))
        assert not isinstance(away.value, OutcomeUnknown)
        assert not engine.connected
        line.is_cut, line.is_silent = False, True
        with pytest.raises(OutcomeUnknown):
            await site.append(engine, site.job(1), message_id="m")
        line.is_silent = False
        assert await site.append(engine, site.job(1), message_id="m") == 1, "stored once"
        assert (engine.connected, engine.reconnects) == (True, 1)


async def test_an_answer_that_no_node_wrote_leaves_open_what_was_stored():
    async with a_site() as (site, harness):
        engine = await site.connect()
        harness.lines[0].says = b"<html>Welcome to our hotel</html>"
        with pytest.raises(OutcomeUnknown):
            await site.append(engine, site.job(1))
        given = [Append(site.job(n), b"x", message_id=f"{n}", expected_last=0) for n in range(2)]
        told = await engine.log.append_many(given)
        assert [type(one) for one in told] == [OutcomeUnknown] * 2
        with pytest.raises(Unavailable) as unread:
            await engine.log.last()
        assert not isinstance(unread.value, OutcomeUnknown)


async def test_a_node_that_says_more_and_goes_no_further_is_not_asked_for_ever():
    async with a_site() as (site, harness):
        engine = await site.connect()
        harness.lines[0].says = msgspec.json.encode(Found(upto=0, more=True))
        for ask in (
            engine.log.read(0, limit=10),
            engine.log.newest([site.job(1)]),
            engine.log.confirm(site.job(1), after=0, upto=5),
            engine.log.fetch_many([1, 2]),
            anext(engine.log.read_lane([site.job(1)])),
        ):
            async with asyncio.timeout(60):
                with pytest.raises(Unavailable, match="no further"):
                    await ask
        for is_more in (True, False):
            harness.lines[0].says = msgspec.json.encode(Found(more=is_more))
            harness.lines[0].asked = 0
            async with engine.log.follow(0) as batches:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(60):
                        await anext(batches)
            assert harness.lines[0].asked <= 60 / AGAIN_S + 2, "and not as often as it can"


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(signed_client, "MOST_BYTES", 1_000)
    async with a_site() as (site, harness):
        engine = await site.connect()
        harness.lines[0].says = b" " * 1_001
        with pytest.raises(Unavailable, match="more than 1,000 bytes"):
            await engine.log.last()
        with pytest.raises(OutcomeUnknown, match="more than 1,000 bytes"):
            await site.append(engine, site.job(1))


async def test_a_follower_goes_on_when_its_node_is_back_and_notices_another_log():
    async with a_site() as (site, harness):
        engine = await site.connect()
        await site.append(engine, site.job(1), b"one")
        async with engine.log.follow(0) as batches:
            assert seqs(await collect(batches, 1)) == [1]
            older = harness.server.snapshot()
            harness.lines[0].is_cut = True
            waiting = asyncio.ensure_future(collect(batches, 1))
            await asyncio.sleep(30)
            await engine.node.log.append(site.job(2), b"two", message_id="two", expected_last=0)
            harness.lines[0].is_cut = False
            assert seqs(await waiting) == [2]

            harness.server.kill()
            harness.server.restore(older)
            harness.server.start()
            with pytest.raises(LogReplaced):
                await collect(batches, 1)


async def test_closing_ends_whoever_waits_and_everything_after():
    async with a_site() as (site, _):
        engine = await site.connect()
        async with engine.log.follow(0) as batches:
            waiting = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(1)
            await engine.close()
            with pytest.raises(Unavailable):
                await waiting
        for ask in (engine.log.last(), engine.info(), engine.bus.publish("s", b"")):
            with pytest.raises(Unavailable):
                await ask
        await engine.close()


async def test_what_there_is_not_says_so():
    async with a_site() as (site, _):
        engine = await site.connect()
        with pytest.raises(Misconfigured, match="no work queues"):
            engine.log.work(site.calls(), name="q")
        for ask in (engine.leases.get("k"), engine.blobs.has("blake3:" + "0" * 64)):
            with pytest.raises(NotPermitted, match="over HTTP"):
                await ask
        assert (engine.messages, engine.gate) == (None, None)


@pytest.mark.parametrize(
    "url", ["http://example.org", "ftp://localhost", "localhost:1", "https://"]
)
async def test_nothing_is_sent_in_the_clear(url):
    key = SeedKeyring(b"k" * 32)
    wall = HostClock(asyncio.get_running_loop(), epoch_ms=0)
    with pytest.raises(Misconfigured):
        await HttpEngine.connect(url, "a" * 16, key, wall=wall, entropy=SystemEntropy())
