"""What the server's own permissions refuse, in the server's words and at once."""

import asyncio
import json
import socket
import struct
import time
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.nats import LocalServer, NatsEngine, ServerUser
from antiphon.engines.nats.streams import log_name
from antiphon.errors import EngineDenied, Misconfigured
from antiphon.testing.engine_suite.harness import new_mesh
from tests.engines.nats.harness import connect

pytestmark = pytest.mark.nats


def member(mesh: str) -> ServerUser:
    """A worker of kind `k`: no stream API, no other kinds."""
    stream = log_name(mesh)
    return ServerUser(
        user="member",
        password="secret",
        publish=(
            f"ap.{mesh}.job.k.*",
            f"$JS.API.DIRECT.GET.{stream}",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.k-1",
            f"$JS.ACK.{stream}.k-1.>",
        ),
        subscribe=("_MINE.>", f"apr.{mesh}.ctl.>"),
    )


@asynccontextmanager
async def mesh_and_member():
    mesh = new_mesh()
    async with (
        LocalServer(users=[member(mesh)]) as server,
        await connect(server, mesh) as owner,
    ):
        await owner.log.append(f"ap.{mesh}.ctl.genesis", b"g", message_id="g", expected_last=0)
        engine = await NatsEngine.connect(
            server.url, mesh, user="member", password="secret", inbox_prefix="_MINE"
        )
        async with engine:
            yield mesh, owner, engine


async def test_a_member_without_the_stream_api_works():
    async with mesh_and_member() as (mesh, owner, engine):
        assert (await engine.log.last()).payload == b"g"
        assert await engine.log.append(
            f"ap.{mesh}.job.k.1", b"claim", message_id="c", expected_last=0
        )
        assert len(await engine.log.read_subjects([f"ap.{mesh}.job.k.1"])) == 1
        async with engine.log.follow(0, subject=f"ap.{mesh}.ctl.>") as batches:
            assert [record.seq for record in await anext(batches)] == [1]
        async with owner.log.work(f"ap.{mesh}.call.1.k.*", name="k-1"):
            pass
        await owner.log.append(f"ap.{mesh}.call.1.k.2", b"", message_id="d", expected_last=0)
        async with engine.log.work(f"ap.{mesh}.call.1.k.*", name="k-1") as queue:
            queue.grant(1)
            (await queue.next()).ack()


async def test_a_refused_publish_is_an_error_and_not_a_timeout():
    async with mesh_and_member() as (mesh, _, engine):
        begun = time.monotonic()
        with pytest.raises(EngineDenied) as caught:
            await engine.log.append(
                f"ap.{mesh}.job.other.1", b"", message_id="o", expected_last=0, timeout_s=10
            )
        assert time.monotonic() - begun < 2
        assert f'Permissions Violation for Publish to "ap.{mesh}.job.other.1"' in str(caught.value)
        assert any("refused" in line for line in (await engine.info()).warnings)


async def test_a_refused_subscription_ends_the_follower():
    async with mesh_and_member() as (mesh, _, engine):
        async with engine.log.follow(1) as batches:
            with pytest.raises(EngineDenied) as caught:
                await anext(batches)
        assert f'"apr.{mesh}.>"' in str(caught.value)


async def test_refused_pulls_and_purges_say_so():
    async with mesh_and_member() as (mesh, _, engine):
        with pytest.raises(EngineDenied):
            await engine.log.purge(f"ap.{mesh}.>", upto=1)
        async with engine.log.work(f"ap.{mesh}.call.1.other.*", name="other-1") as queue:
            queue.grant(1)
            with pytest.raises(EngineDenied):
                await queue.next()


async def test_a_member_cannot_make_a_mesh():
    async with mesh_and_member() as (mesh, _, engine):
        url = engine._connection._client.connected_url.geturl()
        for wanted, create, kind in ((mesh, True, EngineDenied), (new_mesh(), False, Exception)):
            with pytest.raises((EngineDenied, Misconfigured)) as caught:
                await NatsEngine.connect(
                    url,
                    wanted,
                    user="member",
                    password="secret",
                    inbox_prefix="_MINE",
                    create=create,
                )
            assert isinstance(caught.value, kind)


async def test_wrong_credentials_are_named():
    async with LocalServer() as server:
        with pytest.raises(EngineDenied) as caught:
            await connect(server, new_mesh(), password="wrong")
        assert "refused the credentials" in caught.value.message
        assert "wrong" not in str(caught.value)


async def test_a_refusal_that_got_lost_in_a_reset_is_asked_for_again():
    """The server says why and hangs up; a ping sent meanwhile turns that into a reset."""
    logins = 0

    async def refuse(reader, writer):
        nonlocal logins
        info = {"version": "2.15.0", "max_payload": 1024, "auth_required": True}
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        await reader.readline()
        logins += 1
        if logins == 1:
            reset = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        else:
            await reader.readline()
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineDenied):
            await NatsEngine.connect(f"nats://127.0.0.1:{port}", new_mesh(), user="a", password="b")
    assert logins == 2
