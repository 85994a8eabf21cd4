"""What the server's own permissions refuse, in the server's words and at once."""

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager

import pytest

from antiphon.core.authority.scope import admits
from antiphon.core.authority.subject_rights import below
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.core.record import subjects
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.nats import LocalServer, Login, NatsEngine, UserKey
from antiphon.engines.nats.log.streams import log_name
from antiphon.engines.nats.server.permissions import (
    Permissions,
    of_member,
    of_refresh_key,
    of_ticket,
)
from antiphon.engines.nats.server.process import ServerUser
from antiphon.errors import EngineDenied, LostRace, Malformed, Misconfigured
from antiphon.testing.engine_suite.harness import new_mesh, whole_lane
from tests.engines.nats.harness import connect, until
from tests.engines.nats.operated import RENDER, operated
from tests.job_scopes import BRANCHES, job_scope
from tests.patience import NEVER_S

pytestmark = pytest.mark.nats


def member(mesh: str) -> ServerUser:
    """A worker of kind `k`: no stream API, no other kinds."""
    stream = log_name(mesh)
    return ServerUser(
        user="member",
        password="secret",
        publish=(
            f"ap.{mesh}.jobs.job.k.*",
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
            server.url, mesh, login=Login(user="member", password="secret"), inbox_prefix="_MINE"
        )
        async with engine:
            yield mesh, owner, engine


async def test_a_member_without_the_stream_api_works():
    async with mesh_and_member() as (mesh, owner, engine):
        assert (await engine.log.last()).payload == b"g"
        assert await engine.log.append(
            f"ap.{mesh}.jobs.job.k.1", b"claim", message_id="c", expected_last=0
        )
        assert len(await whole_lane(engine.log, [f"ap.{mesh}.jobs.job.k.1"])) == 1
        async with engine.log.follow(0, subject=f"ap.{mesh}.ctl.>") as batches:
            assert [record.seq for record in await anext(batches)] == [1]
        async with owner.log.work(f"ap.{mesh}.jobs.1.k.*", name="k-1"):
            pass
        await owner.log.append(f"ap.{mesh}.jobs.1.k.2", b"", message_id="d", expected_last=0)
        async with engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="k-1") as queue:
            queue.grant(1)
            (await queue.next()).ack()


async def test_a_refused_publish_is_an_error_and_not_a_timeout():
    async with mesh_and_member() as (mesh, _, engine):
        with pytest.raises(EngineDenied) as caught:
            await engine.log.append(
                f"ap.{mesh}.jobs.job.other.1",
                b"",
                message_id="o",
                expected_last=0,
                timeout_s=NEVER_S,
            )
        assert f'Permissions Violation for Publish to "ap.{mesh}.jobs.job.other.1"' in str(
            caught.value
        )
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
        async with engine.log.work(f"ap.{mesh}.jobs.1.other.*", name="other-1") as queue:
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
                    login=Login(user="member", password="secret"),
                    inbox_prefix="_MINE",
                    create=create,
                )
            assert isinstance(caught.value, kind)


async def test_wrong_credentials_are_named():
    async with LocalServer() as server:
        with pytest.raises(EngineDenied) as caught:
            await connect(server, new_mesh(), login=Login(user=server.user, password="wrong"))
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
            await NatsEngine.connect(
                f"nats://127.0.0.1:{port}", new_mesh(), login=Login(user="a", password="b")
            )
    assert logins == 2


@pytest.mark.nats
async def test_an_encrypted_connection_that_is_gone_has_room(tmp_path):
    async with operated(tmp_path) as place:
        connection = place.owner._connection
        for _ in range(2):  # as the client does when the server ends a connection
            connection._client._transport._io_writer.transport.close()
        await connection.have_room()


# --- permissions that come from a scope -------------------------------------------------------


def test_a_scope_becomes_subjects():
    user = UserKey.new().public
    scope = job_scope(reads=("render.>", "build"), works=("render.>",), calls=("test.unit",))
    granted = of_member("m", user, scope, ["render=video=normal"], BRANCHES)
    assert set(granted.publish) == {
        "ap.m.jobs.job.render.*.>",
        "ap.m.jobs.job.test.unit.*",
        "ap.m.plan.test.unit.*",
        *(f"ap.m.jobs.{priority}.test.unit.*" for priority in (0, 1, 2)),
        "ap.m.jobs.wait.test.unit.*",
        "$JS.API.DIRECT.GET.AP_m_LOG.ap.m.ctl.genesis",
        "$JS.API.CONSUMER.MSG.NEXT.AP_m_LOG.render=video=normal",
        "$JS.ACK.AP_m_LOG.render=video=normal.>",
        f"apg.m.{user}.>",
        "apb.m.inbox.>",
        f"apb.m.heartbeat.{user}",
        "apb.m.work.render.>",
        "apb.m.work.test.unit",
        "apb.m.live.render.*.>",
        "apb.m.live.test.unit.*",
        "apb.m.status.render.>",
        "apb.m.status.test.unit",
        "apb.m.promise.render.*.>",
        "apb.m.promise.test.unit.*",
    }
    assert set(granted.subscribe) == {
        f"_I.{user}.>",
        f"apb.m.inbox.{user}.>",
        "apb.m.roll",
        "apb.m.roots",
        "apb.m.heartbeat.>",
        "apb.m.beat",
        "apb.m.meshstatus",
        "apb.m.messagegate",
        "apb.m.address",
        "apb.m.work.render.>",
        "apb.m.work.test.unit",
        "apr.m.ctl.>",
        "apr.m.seal",
        *(f"apr.m.{one}.render.*.>" for one in ("jobs.*", "plan", "lock", "memo", "forget")),
        *(f"apr.m.{one}.build.*" for one in ("jobs.*", "plan", "lock", "memo", "forget")),
        "apb.m.live.render.*.>",
        "apb.m.live.build.*",
        "apb.m.status.render.>",
        "apb.m.status.build",
        "apb.m.promise.render.*.>",
        "apb.m.promise.build.*",
    }
    assert set(granted.unheard) == {
        *(f"apr.m.{one}.build.*.>" for one in ("jobs.*", "plan", "lock", "memo", "forget")),
        "apb.m.live.build.*.>",
        "apb.m.status.build.>",
        "apb.m.promise.build.*.>",
    }


@pytest.mark.parametrize(
    "kind_filter, within, without",
    [
        (">", ["render", "render.video", "a.b.c"], []),
        ("render.>", ["render.video", "render.video.h264"], ["render", "renders.x", "a.render.b"]),
        ("render.video", ["render.video"], ["render", "render.video.h264", "render.audio"]),
    ],
)
def test_subjects_admit_exactly_the_kinds_of_the_filter(kind_filter, within, without):
    job = "0" * 64
    pattern = f"ap.m.jobs.job.{below(kind_filter)}"
    for kind in within:
        assert admits(kind_filter, kind)
        assert subjects.matches(pattern, job_subjects.job("m", kind, job))
    for kind in without:
        assert not admits(kind_filter, kind)
        assert not subjects.matches(pattern, job_subjects.job("m", kind, job))


def test_the_server_and_the_gate_show_a_member_the_same():
    scope = job_scope(reads=("a", "b.>", "c.d", "e.f.>"))
    granted = of_member("m", UserKey.new().public, scope, [], BRANCHES)
    heard = {one for one in granted.subscribe if one.startswith("apr.")}
    assert heard == {f"apr{one[2:]}" for one in sight_of("m", BRANCHES, scope).live}


@pytest.mark.parametrize("granted_to, asks_for", [(of_ticket, "join"), (of_refresh_key, "login")])
def test_tickets_and_refresh_keys_ask_the_gate_for_one_thing_and_nothing_else(granted_to, asks_for):
    user = UserKey.new().public
    assert granted_to("m", user) == Permissions(
        (f"apb.m.gate.{user}.{asks_for}",), (f"_I.{user}.>", f"apb.m.inbox.{user}.>")
    )


def test_names_that_could_be_wildcards_get_no_permissions():
    user = UserKey.new().public
    for queue in ("*", ">", "a.b", "", "a b"):
        with pytest.raises(Malformed):
            of_member("m", user, RENDER, [queue], BRANCHES)
    for bad in ("*", ">", "", user + ".x"):
        for granted_to in (
            of_ticket,
            of_refresh_key,
            lambda m, u: of_member(m, u, RENDER, [], BRANCHES),
        ):
            with pytest.raises(Malformed):
                granted_to("m", bad)


async def test_a_member_works_within_its_kinds_over_tls(tmp_path):
    async with operated(tmp_path) as place:
        mesh = place.mesh
        await place.owner.log.append(
            f"ap.{mesh}.ctl.genesis", b"g", message_id="g", expected_last=0
        )
        queues = await place.make_queues("render.video")
        assert queues == tuple(queue_name("render.video", one) for one in PRIORITIES)
        async with place.gate(RENDER), await place.admit(queues=queues) as member:
            job, call = (f"ap.{mesh}.{one}.render.video.1" for one in ("jobs.job", "jobs.1"))
            async with member.log.follow(
                0, subject=f"ap.{mesh}.jobs.job.render.video.1"
            ) as batches:
                assert await member.log.append(call, b"call", message_id="c", expected_last=0) == 2
                async with member.log.work(
                    f"ap.{mesh}.jobs.1.render.video.*", name=queues[1]
                ) as queue:
                    queue.grant(1)
                    delivery = await queue.next()
                    assert delivery.record.subject == call
                    assert await member.log.append(job, b"claim", message_id="j", expected_last=0)
                    delivery.ack()
                assert [record.subject for record in await anext(batches)] == [job]
            lane = await whole_lane(member.log, [job, call])
            assert [record.payload for record in lane] == [b"call", b"claim"]
            assert (await member.log.fetch(1)).payload == b"g"
            with pytest.raises(LostRace):
                await member.log.append(job, b"x", message_id="k", expected_last=0)
            assert (await member.info()).warnings[1:] == ()


async def test_everything_else_is_refused_at_once_and_in_words(tmp_path):
    async with operated(tmp_path) as place:
        mesh, stream = place.mesh, place.owner.log.stream
        await place.owner.log.append(
            f"ap.{mesh}.jobs.job.other.1", b"secret", message_id="s", expected_last=0
        )
        await place.make_queues("other")
        mine = await place.make_queues("render.video")
        other = UserKey.new().public
        direct = f"$JS.API.DIRECT.GET.{stream}"
        forbidden = [
            f"ap.{mesh}.jobs.job.other.1",
            f"ap.{mesh}.jobs.job.render.1",  # the kind `render` is not below `render`
            f"ap.{mesh}.jobs.1.other.1",
            f"ap.{mesh}.jobs.wait.other.1",
            f"ap.{mesh}.ctl.route.render",
            f"ap.{mesh}.ctl.rules",
            f"ap.{mesh}.ctl.readmit.z6Mk",
            f"ap.{mesh}.seal",
            direct,
            f"{direct}.ap.{mesh}.jobs.job.other.1",
            f"{direct}.ap.{mesh}.>",
            f"{direct}.ap.{mesh}.jobs.job.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.other=normal",
            f"$JS.ACK.{stream}.other=normal.1.1.1.1.1",
            f"$JS.API.CONSUMER.CREATE.{stream}.x.ap.{mesh}.jobs.1.render.video.*",
            f"$JS.API.CONSUMER.INFO.{stream}.{mine[0]}",
            f"$JS.API.CONSUMER.DELETE.{stream}.{mine[0]}",
            f"$JS.API.STREAM.INFO.{stream}",
            f"$JS.API.STREAM.PURGE.{stream}",
            f"$JS.API.STREAM.DELETE.{stream}",
            f"$JS.API.STREAM.MSG.GET.{stream}",
            "$JS.API.INFO",
            f"_I.{other}.x",
            f"apg.{mesh}.{other}.get",
            f"apb.{mesh}.gate.{other}.login",
            f"apr.{mesh}.ctl.rules",
            "$SYS.REQ.CLAIMS.UPDATE",
        ]
        async with await place.admit(queues=mine) as member:
            for subject in forbidden:
                with pytest.raises(EngineDenied) as caught:
                    await member._requester.request(subject.encode(), b"", timeout_s=NEVER_S)
                assert subject in caught.value.message
            overheard: list[str] = []
            places = [
                f"_I.{other}.>",
                f"apb.{mesh}.inbox.{other}.>",
                f"apb.{mesh}.inbox.>",
                f"apb.{mesh}.gate.>",
                f"apg.{mesh}.>",
                f"apr.{mesh}.jobs.job.other.*",
                f"apr.{mesh}.jobs.job.render.>",
                f"apr.{mesh}.>",
                ">",
            ]
            for subject in places:
                member._connection.listen(
                    subject,
                    lambda *_: None,
                    denied=lambda _, subject=subject: overheard.append(subject),
                )
            await member._connection.round_trip()
            assert overheard == places


@pytest.mark.parametrize(
    "reads, heard",
    [
        (("render.video",), ["render.video"]),
        (("render.video", "render.video.>"), ["render.video", "render.video.deep"]),
        # Not to be had from the server without `render.video.secret`.
        (("render.video", "render.video.deep"), ["render.video.deep"]),
    ],
)
async def test_wildcards_of_its_own_widen_no_kind_that_is_named_exactly(reads, heard, tmp_path):
    async with operated(tmp_path) as place:
        mesh = place.mesh
        found: list[str] = []
        async with await place.admit(job_scope(reads=reads)) as member:
            for asked in (
                f"apr.{mesh}.jobs.job.{kind}.>" for kind in ("render.video", "render", "*")
            ):
                member._connection.listen(asked, lambda subject, *_: found.append(subject.decode()))
            for kind in heard:
                member._connection.listen(
                    f"apr.{mesh}.jobs.job.{kind}.*",
                    lambda subject, *_: found.append(subject.decode()),
                )
            await member._connection.round_trip()
            kinds = ("render", "render.video", "render.video.deep", "render.video.secret")
            kinds = kinds if f"{reads[0]}.>" not in reads else kinds[:3]
            for kind in kinds:
                await place.owner.log.append(
                    f"ap.{mesh}.jobs.job.{kind}.1", b"", message_id=kind, expected_last=0
                )
            await until(lambda: len(set(found)) >= len(heard))
            await asyncio.sleep(0.1)
            assert set(found) == {f"apr.{mesh}.jobs.job.{kind}.1" for kind in heard}
            direct = f"$JS.API.DIRECT.GET.{place.owner.log.stream}.ap.{mesh}.jobs.job.render.video"
            for end in (">", "*", "*.*") if len(reads) == 1 else ():
                with pytest.raises(EngineDenied):
                    await member._requester.request(f"{direct}.{end}".encode(), b"", timeout_s=5)
