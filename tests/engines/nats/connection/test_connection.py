"""When the connection is up, when it is not, and what waits in between."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Server

from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.engines.nats.connection.client import next_server
from antiphon.engines.nats.connection.connection import Connection, Login
from antiphon.engines.nats.connection.requester import Requester
from antiphon.errors import Misconfigured, OutcomeUnknown, Unavailable
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect, sever, stalled, until
from tests.forked import in_child
from tests.local_server import shared_server
from tests.patience import NEVER_S, PATIENCE_S

pytestmark = pytest.mark.nats


@asynccontextmanager
async def fake_server(version):
    """Speaks just enough NATS to say how old it is."""

    async def greet(reader, writer):
        info = {"server_id": "x", "version": version, "headers": True, "max_payload": 1024}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listening:
        yield f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


def test_however_long_a_server_is_away_it_is_tried_every_second_and_not_by_all_at_once():
    for tries in range(60):
        server = Server(uri=None, reconnects=tries)
        waits = {next_server([server], {})[1] for _ in range(50)}
        assert max(waits) <= 1.0
        assert len(waits) > 10
    assert min(waits) >= 0.1, "and not in a tight loop"


@pytest.mark.parametrize("version", ["2.9.10", "2.14.9", "1.4.1", ""])
async def test_an_old_server_is_refused_in_a_sentence(version):
    async with fake_server(version) as url:
        with pytest.raises(Misconfigured) as caught:
            await Connection.open(url, login=Login())
    assert "2.15 or newer" in caught.value.message
    assert version in caught.value.message


@pytest.mark.parametrize("version", ["2.15.0", "2.15.1-RC.1", "2.16.0", "3.0.0"])
async def test_a_new_enough_server_is_taken(version):
    async with fake_server(version) as url:
        connection = await Connection.open(url, login=Login())
        assert connection.server_version == version
        await connection.close()


async def test_without_a_server_the_first_connection_fails_at_once():
    with pytest.raises(Unavailable) as caught:
        await NatsEngine.connect("nats://127.0.0.1:1", new_mesh())
    assert "127.0.0.1:1" in caught.value.message


async def test_a_password_in_the_address_is_never_shown():
    with pytest.raises(Unavailable) as caught:
        await NatsEngine.connect("nats://me:hunter2@127.0.0.1:1", new_mesh())
    assert "hunter2" not in str(caught.value)
    server = shared_server()
    url = f"nats://{server.user}:{server.password}@127.0.0.1:{server.port}"
    with pytest.raises(Misconfigured) as refused:
        await NatsEngine.connect(url, new_mesh())
    assert server.password not in str(refused.value)


async def test_one_of_several_addresses_is_enough():
    server = shared_server()
    url = f"nats://127.0.0.1:1,{server.url}"
    engine = await NatsEngine.connect(url, new_mesh(), login=server.login, create=True)
    assert engine.connected
    await engine.close()


async def test_writes_in_flight_become_unknown_as_soon_as_the_line_breaks():
    mesh = new_mesh()
    async with LocalServer() as server, await connect(server, mesh) as engine:
        async with stalled(server):
            waiting = [
                asyncio.ensure_future(
                    engine.log.append(
                        f"ap.{mesh}.jobs.job.k.{n}",
                        b"",
                        message_id=f"{n}",
                        expected_last=0,
                        timeout_s=NEVER_S,
                    )
                )
                for n in range(50)
            ]
            await until(lambda: len(engine._requester._pending) == len(waiting))
            sever(engine)
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in outcomes)


async def test_nothing_that_was_refused_while_down_is_sent_later():
    mesh = new_mesh()
    async with LocalServer() as server, await connect(server, mesh) as engine:
        server.kill()
        await until(lambda: not engine.connected)
        for n in range(20):
            with pytest.raises(Unavailable) as caught:
                await engine.log.append(
                    f"ap.{mesh}.jobs.job.k.{n}", b"", message_id=f"{n}", expected_last=0
                )
            assert not isinstance(caught.value, OutcomeUnknown)
            assert "nothing was sent" in caught.value.message
        await server.start()
        await until(lambda: engine.connected)
        await asyncio.sleep(0.3)
        assert await engine.log.last() is None


async def test_it_comes_back_every_time():
    mesh = new_mesh()
    async with await connect(shared_server(), mesh) as engine:
        for n in range(5):
            sever(engine)
            await until(lambda: not engine.connected)
            await until(lambda: engine.connected)
            assert await engine.log.append(
                f"ap.{mesh}.jobs.job.k.{n}", b"", message_id=f"{n}", expected_last=0
            )


async def test_an_error_that_nats_py_gives_up_on_is_survived():
    async with await connect(shared_server(), new_mesh()) as engine:
        engine._connection.send(b"BOGUS\r\n")  # the server answers -ERR and hangs up
        await until(lambda: not engine.connected)
        await until(lambda: engine.connected)
        assert await engine.log.last() is None


async def test_the_window_bounds_what_is_in_flight_and_cancelling_gives_room_back():
    server = shared_server()
    login = Login(user=server.user, password=server.password)
    connection = await Connection.open(server.url, login=login)
    requester = Requester(connection, window=4)
    silent = f"{connection.inbox}.nobody"
    connection.listen(silent, lambda *_: None)  # hears and never answers
    try:
        waiting = [
            asyncio.ensure_future(requester.request(silent.encode(), b"", timeout_s=NEVER_S))
            for _ in range(10)
        ]
        await until(lambda: len(requester._pending) == 4)
        with pytest.raises(Unavailable, match="nothing was sent"):
            await requester.request(silent.encode(), b"", timeout_s=0.1)
        for task in waiting[:9]:
            task.cancel()
        await until(lambda: len(requester._pending) == 1)
        waiting[9].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(Unavailable, match="in time"):  # large, but alone it may go
            await requester.request(silent.encode(), bytes(500_000), timeout_s=0.1)
        assert (requester._room, len(requester._pending), len(requester._queue)) == (4, 0, 0)
    finally:
        requester.close()
        await connection.close()


async def test_a_request_that_nobody_hears_is_told_so_at_once():
    async with await connect(shared_server(), new_mesh()) as engine:
        reply = await engine._requester.request(b"nobody.is.here", b"", timeout_s=NEVER_S)
        assert reply.header.startswith(b"NATS/1.0 503")


async def test_a_cancellation_that_comes_with_the_answer_is_not_swallowed():
    """nats-py's own flush returns as if nothing had happened, and a service never ends."""
    server = shared_server()
    login = Login(user=server.user, password=server.password)
    connection = await Connection.open(server.url, login=login)
    client = connection._client
    asking: asyncio.Task[None]
    as_before = client._process_pong

    async def answer_and_cancel() -> None:
        await as_before()
        asking.cancel()

    client._process_pong = answer_and_cancel
    try:
        asking = asyncio.ensure_future(connection.round_trip())
        await asyncio.wait([asking], timeout=PATIENCE_S)
        assert asking.cancelled()
    finally:
        client._process_pong = as_before
        await connection.close()


@pytest.mark.processes
async def test_a_forked_child_sends_nothing_through_its_parents_connection():
    server = shared_server()
    engine = await NatsEngine.connect(server.url, new_mesh(), login=server.login, create=True)
    try:
        said = in_child(lambda: asyncio.run(engine.log.last()))
        assert said.startswith("Forked: this was opened in the parent process")
        assert await engine.log.last() is None
    finally:
        await engine.close()


@pytest.mark.parametrize("turn", range(3, 9))
async def test_a_close_in_the_middle_of_a_reconnect_leaves_no_socket_and_no_task(monkeypatch, turn):
    """nats-py swallows a cancellation that comes in the very turn in which it is connected."""
    dial, writers, dialled = asyncio.open_connection, [], asyncio.Event()

    async def slow_dial(*args, **kwargs):
        reader, writer = await dial(*args, **kwargs)
        writers.append(writer)
        dialled.set()
        try:
            for _ in range(6):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        return reader, writer

    connection = await Connection.open(shared_server().url, login=shared_server().login)
    monkeypatch.setattr(asyncio, "open_connection", slow_dial)
    connection._client.hang_up()
    await dialled.wait()
    for _ in range(turn):
        await asyncio.sleep(0)
    await connection.close()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert all(writer.transport.is_closing() for writer in writers)
