"""What one client takes of a server: places, connections, time; and what is not a request."""

import asyncio
import socket
from contextlib import AsyncExitStack, ExitStack
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from starlette.responses import PlainTextResponse

from antiphon.guard import Who
from antiphon.interfaces.http import application, bounded_server, connection, door
from tests.interfaces.http.client import OPERATOR, connected, request, served
from tests.interfaces.http.test_node_server import CLOSED, Holder, long_bars
from tests.patience import NEVER_S

pytestmark = pytest.mark.processes

HALF_A_BODY = request("/v1/a2a/deliver", method="POST", body=b"x" * 100)[:-1]


def limited(monkeypatch, **limits):
    """Ordinary requests with these limits."""
    monkeypatch.setattr(application, "REQUESTS", replace(application.REQUESTS, **limits))


def held_status(monkeypatch):
    """`/v1/status` that answers when it is told to; what has begun, and what tells it."""
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def held(*_):
        begun.release()
        await go_on.wait()
        return PlainTextResponse("done")

    monkeypatch.setattr(application.NodeRoutes, "status", held)
    return begun, go_on


@pytest.mark.req("B24")
async def test_one_party_leaves_room_for_others_and_probes_are_answered(monkeypatch):
    limited(monkeypatch, in_all=4, of_party=4)
    begun, go_on = held_status(monkeypatch)
    async with served(CLOSED, long_bars) as node, AsyncExitStack() as stack:
        others = [(await Holder(node, long_bars).granted()).token() for _ in range(3)]

        async def asking(token):
            line = await stack.enter_async_context(connected(node.port))
            line.send(request("/v1/status", token))
            return line

        async def begins(token):
            line = await asking(token)
            await begun.acquire()
            return line

        lines = [await begins(OPERATOR) for _ in range(2)]
        refused = await (await asking(OPERATOR)).answer()
        assert (refused.status, refused.json["reason"]) == (429, "rate")
        assert int(refused.headers["retry-after"]) >= 1
        lines += [await begins(one) for one in others[:2]]
        full = await asking(others[2])
        assert (await full.answer()).status == 503, "there is no room for anybody"
        await full.ends()
        assert (await node.ask("/healthz")).status == 200
        assert (await node.ask("/readyz")).status == 200
        go_on.set()
        assert [(await line.answer()).status for line in lines] == [200] * 4
        assert (await node.ask("/v1/status", OPERATOR)).status == 200, "the places were given back"


@pytest.mark.req("B24")
async def test_half_a_body_takes_no_requests_place(monkeypatch):
    limited(monkeypatch, in_all=1, seconds=NEVER_S)
    async with served() as node, AsyncExitStack() as stack:
        for _ in range(3):
            line = await stack.enter_async_context(connected(node.port))
            line.send(HALF_A_BODY)
        assert (await node.ask("/v1/status", OPERATOR)).status == 200


@pytest.mark.req("B24")
@pytest.mark.parametrize(
    "sent", [b"", b"GET /healthz HT", HALF_A_BODY], ids=["nothing", "half a head", "half a body"]
)
async def test_connections_that_ask_nothing_do_not_keep_a_probe_from_its_answer(monkeypatch, sent):
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(connection, "IDLE_S", NEVER_S)
    limited(monkeypatch, seconds=NEVER_S)
    async with served() as node, AsyncExitStack() as stack:
        silent = []
        for _ in range(4):
            silent.append(await stack.enter_async_context(connected(node.port)))
            silent[-1].send(sent)
        for oldest in silent[:3]:
            probe = await stack.enter_async_context(connected(node.port))
            probe.send(request("/healthz"))
            assert (await probe.answer()).status == 200
            await oldest.ends()
        assert not silent[3].reader.at_eof(), "only as many are closed as are needed"


async def test_connections_that_come_while_the_node_is_busy_wait_and_are_not_dropped():
    """What the system drops is sent again after a second: too late for a probe."""
    async with served() as node:
        with ExitStack() as stack:
            for _ in range(300):  # the node's loop accepts none of them meanwhile
                one = socket.create_connection(("127.0.0.1", node.port), timeout=0.5)
                stack.enter_context(one)
        assert (await node.ask("/healthz")).status == 200


async def test_a_probe_that_has_to_wait_is_not_closed_for_a_new_connection(monkeypatch):
    """Its address has used more than its share: others there come and go, and it is answered."""
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(connection, "IDLE_S", NEVER_S)
    waits, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_):
        waits.set()
        await go_on.wait()

    monkeypatch.setattr(door, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": wait}))
    async with served() as node, AsyncExitStack() as stack:
        used_up = Who(party="address 127.0.0.1", is_stranger=True)
        node.node.guard.spend(used_up, NEVER_S)
        probe = await stack.enter_async_context(connected(node.port))
        probe.send(request("/healthz"))
        await waits.wait()
        crowd = [await stack.enter_async_context(connected(node.port)) for _ in range(9)]
        for one in crowd[:5]:
            await one.ends()
        go_on.set()
        assert (await probe.answer()).status == 200


async def test_the_address_with_the_most_connections_gives_way(monkeypatch):
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(connection, "IDLE_S", NEVER_S)
    async with served() as node, AsyncExitStack() as stack:

        async def connect(source):
            return await stack.enter_async_context(connected(node.port, source=source))

        early = await connect("127.0.0.1")
        early.send(request("/healthz"))
        assert (await early.answer()).status == 200
        crowd = [await connect("127.0.0.2") for _ in range(30)]
        for one in crowd[:25]:
            await one.ends()
        early.send(request("/healthz"))
        assert (await early.answer()).status == 200, "it has waited longest, and is not the crowd's"
        assert (await node.ask("/healthz")).status == 200


async def test_a_request_that_is_being_answered_is_not_closed_for_a_new_connection(monkeypatch):
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 2)
    begun, go_on = held_status(monkeypatch)
    async with served() as node, AsyncExitStack() as stack:
        lines = [await stack.enter_async_context(connected(node.port)) for _ in range(2)]
        for line in lines:
            line.send(request("/v1/status", OPERATOR))
            await begun.acquire()
        refused = await stack.enter_async_context(connected(node.port))
        await refused.ends()
        go_on.set()
        assert [(await line.answer()).body for line in lines] == [b"done"] * 2


async def test_a_request_whose_client_has_left_stops_its_work(monkeypatch):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def long(*_):
        begun.set()
        try:
            await asyncio.sleep(NEVER_S)
        finally:
            ended.set()

    monkeypatch.setattr(application.NodeRoutes, "status", long)
    async with served() as node:
        async with connected(node.port) as line:
            line.send(request("/v1/status", OPERATOR))
            await begun.wait()
        await ended.wait()


@pytest.mark.parametrize(
    "host, counted_by",
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_connections_are_counted_by_what_one_client_has_one_of(host, counted_by):
    assert connection.network_of(host) == counted_by


async def drip(line) -> None:
    """A byte now and then."""
    while True:
        await asyncio.sleep(0.02)
        line.send(b"x")


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /healthz HTTP/1.1\r\nHost: no", request("/healthz"), request("/healthz") + b"GE"],
    ids=["nothing", "half a head", "one request", "one and a half"],
)
async def test_a_connection_without_a_request_is_closed_whatever_arrives(monkeypatch, sent):
    monkeypatch.setattr(connection, "IDLE_S", 0.1)
    async with served() as node, connected(node.port) as line:
        line.send(sent)
        dripping = asyncio.ensure_future(drip(line))
        try:
            await line.ends()
        finally:
            dripping.cancel()


async def test_a_request_that_takes_longer_is_answered_and_then_there_is_no_more_time(monkeypatch):
    monkeypatch.setattr(connection, "IDLE_S", 2)

    async def slow(*_):
        await asyncio.sleep(2.5)
        return PlainTextResponse("slow")

    monkeypatch.setattr(application.NodeRoutes, "health", slow)
    async with served() as node, connected(node.port) as line:
        line.send(request("/healthz"))
        assert (await line.answer()).body == b"slow"
        dripping = asyncio.ensure_future(drip(line))
        try:
            await line.ends()
        finally:
            dripping.cancel()


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["half a head", "a whole head"])
async def test_a_head_that_is_too_large_is_refused(end):
    async with served() as node:
        large = b"X-Long: " + b"x" * (2 * connection.MAX_HEAD_BYTES) + end
        async with connected(node.port) as line:
            line.send(b"GET /healthz HTTP/1.1\r\nHost: node\r\n" + large)
            assert (await line.reader.readline()).startswith(b"HTTP/1.1 400")
            await line.ends()
        assert (await node.ask("/healthz")).status == 200


async def test_a_request_with_two_lengths_is_refused_and_its_connection_closed():
    async with served() as node, connected(node.port) as line:
        both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        line.send(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" + both)
        assert (await line.answer()).status == 400
        await line.ends()


async def test_a_request_that_takes_too_long_ends(monkeypatch):
    limited(monkeypatch, seconds=0.05)

    async def never(*_):
        await asyncio.sleep(NEVER_S)

    monkeypatch.setattr(application.NodeRoutes, "status", never)
    async with served() as node:
        assert (await node.ask("/v1/status", OPERATOR)).status == 408


async def test_an_answer_does_not_wait_for_its_other_half(monkeypatch):
    """Head and body are two writes; with Nagle's algorithm the second waits for an answer."""
    seen = []

    class Watched(connection.BoundedProtocol):
        def connection_made(self, transport):
            super().connection_made(transport)
            taken = transport.get_extra_info("socket")
            seen.append(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(bounded_server, "BoundedProtocol", Watched)
    async with served() as node:
        await node.ask("/healthz")
    assert all(seen)
    assert len(seen) == 1
