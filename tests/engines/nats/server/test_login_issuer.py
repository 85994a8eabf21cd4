"""Logins given and taken back on a running server, and what a member cannot make it do."""

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import pytest

from antiphon.core.bus.subjects import ENTRY
from antiphon.core.families.jobs.priority import PRIORITIES, rank
from antiphon.engines.nats import MemberRequests, UserKey, admits_readers, roll_call_service
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.credentials.jwts import claims_of
from antiphon.engines.nats.log.consumers import consumer_config
from antiphon.engines.nats.log.streams import Streams
from antiphon.engines.nats.server import permissions
from antiphon.engines.nats.server.accounts import AccountKeys, Accounts
from antiphon.errors import EngineDenied, Misconfigured, Rejected, Unavailable
from antiphon.ports import LoginIssuer
from antiphon.runtime.services import beside
from tests.engines.nats.harness import until
from tests.engines.nats.operated import RENDER, now_s, operated
from tests.job_scopes import job_scope

pytestmark = pytest.mark.nats


def pull(place, engine, name):
    return engine.log.work(f"ap.{place.mesh}.jobs.1.render.video.*", name=name)


async def call(place, number):
    subject = f"ap.{place.mesh}.jobs.1.render.video.{number}"
    await place.owner.log.append(subject, b"", message_id=subject, expected_last=0)


# --- taking back ------------------------------------------------------------------------------


async def test_whoever_is_expelled_is_out_at_once_and_is_told(tmp_path):
    async with operated(tmp_path) as place:
        queues = await place.make_queues("render.video")
        key = UserKey.new()
        async with (
            place.gate(RENDER),
            await place.admit(queues=queues, key=key) as member,
            await place.admit(queues=queues) as neighbour,
            pull(place, member, queues[1]) as queue,
            pull(place, neighbour, queues[1]) as others,
            member.bus.subscribe("roll") as calls,
            member.log.follow(0, subject=f"ap.{place.mesh}.ctl.>") as batches,
        ):
            queue.grant(1)
            waiting = [
                asyncio.ensure_future(one)
                for one in (queue.next(), anext(aiter(calls)), anext(aiter(batches)))
            ]
            await asyncio.sleep(0.1)
            await place.issuer.expel([key.public], now_s())
            await until(lambda: not member.connected)
            told = await asyncio.gather(*waiting, return_exceptions=True)
            for error in told:
                assert isinstance(error, EngineDenied)
                assert error.message == "the NATS server ended this login: it was revoked"
                assert "antiphon join" in error.hint
            with pytest.raises(EngineDenied):
                await member.log.append(
                    f"ap.{place.mesh}.jobs.job.render.video.1", b"", message_id="x", expected_last=0
                )
            # The others did not notice, not even one who was waiting.
            others.grant(1)
            await call(place, 1)
            (await others.next()).ack()


async def test_whoever_is_admitted_again_comes_back(tmp_path):
    async with operated(tmp_path) as place:
        key = UserKey.new()
        logins = [place.issuer.admit(key.public, RENDER, [], name="m", now_s=now_s())]
        async with await place.enter(key, lambda: logins[-1]) as member:
            await place.issuer.expel([key.public], now_s())
            await until(lambda: member._connection.ended is not None)
            # In the same second, and on the same connection.
            logins.append(place.issuer.admit(key.public, RENDER, [], name="m", now_s=now_s()))
            await until(lambda: member.connected)
            assert await member.log.append(
                f"ap.{place.mesh}.jobs.job.render.video.1", b"", message_id="x", expected_last=0
            )
            await place.issuer.expel([key.public], now_s())
            await until(lambda: not member.connected)
        with pytest.raises(EngineDenied) as caught:
            await place.enter(key, logins[-1])
        assert "refuses this login" in caught.value.message


async def test_a_restarted_server_still_refuses_whoever_was_expelled(tmp_path):
    async with operated(tmp_path) as place:
        gone, told_late, stays = UserKey.new(), UserKey.new(), UserKey.new()
        login = {
            key: place.issuer.admit(key.public, RENDER, [], name="m", now_s=now_s())
            for key in (gone, told_late, stays)
        }
        await place.issuer.expel([gone.public], now_s())
        place.server.kill()
        with pytest.raises(Unavailable):  # written down, though nobody could be told
            await place.issuer.expel([told_late.public], now_s())
        await place.server.start()
        for key in (gone, told_late):
            with pytest.raises(EngineDenied):
                await place.enter(key, login[key])
        await (await place.enter(stays, login[stays])).close()
        # Another process finds the same in the directory.
        again = Accounts.open(tmp_path, place.mesh)
        assert {gone.public, told_late.public} <= set(again.revocations.since)


async def test_expelling_nobody_asks_nobody(tmp_path):
    async with operated(tmp_path) as place:
        place.server.kill()
        await place.issuer.expel([], now_s())


async def test_a_login_that_runs_out_ends_the_connection_with_a_sentence(tmp_path):
    async with operated(tmp_path) as place:
        key = UserKey.new()
        for lasts_s in (2, 20):  # a slow machine may need more than two to come in
            scope = job_scope(reads=("render.>",), until_s=now_s() + lasts_s)
            with suppress(EngineDenied):
                member = await place.admit(scope, key=key)
                break
        async with member:
            with pytest.raises(EngineDenied) as caught:
                async with member.bus.subscribe("roll") as calls:
                    await anext(aiter(calls))
            assert caught.value.message == "the NATS server ended this login: it has expired"
        while now_s() <= scope.until_s + 1:  # the last second itself still counts
            await asyncio.sleep(0.1)
        late = place.issuer.admit(key.public, scope, [], name="m", now_s=now_s())
        with pytest.raises(EngineDenied) as caught:
            await place.enter(key, late)
        assert "it has expired" in caught.value.message


# --- giving -----------------------------------------------------------------------------------


async def test_a_ticket_and_a_refresh_key_reach_the_gate_and_nothing_else(tmp_path):
    async with operated(tmp_path) as place:
        issuer: LoginIssuer = place.issuer
        ticket, refresh_key = UserKey.new(), UserKey.new()
        granted = permissions.of_ticket(place.mesh, ticket.public)
        with_ticket = place.accounts.user_jwt(
            ticket.public, granted, expires_s=now_s() + 60, name="ticket", issued_s=now_s()
        )
        for what, key, login in (
            ("join", ticket, with_ticket),
            ("login", refresh_key, issuer.admit_refresh_key(refresh_key.public, now_s())),
        ):
            async with (
                await place.enter(key, login) as guest,
                place.owner.bus.subscribe("gate.*.*") as requests,
                guest.bus.subscribe(guest.bus.new_inbox()) as answers,
            ):
                inbox = answers._subject.removeprefix(f"apb.{place.mesh}.")
                assert inbox.startswith(f"inbox.{key.public}.")
                where = f"gate.{key.public}.{what}"
                await guest.bus.publish(where, b"please", reply=inbox)
                request = await anext(requests)
                assert (request.subject, request.reply) == (where, inbox)
                await place.owner.bus.publish(request.reply, b"welcome")
                assert (await anext(answers)).payload == b"welcome"
                with pytest.raises(EngineDenied):
                    await guest.log.append(
                        f"ap.{place.mesh}.jobs.job.a.1", b"", message_id="x", expected_last=0
                    )


async def test_queues_are_made_as_workers_would_make_them(tmp_path):
    async with operated(tmp_path) as place:
        names = await place.make_queues("render.video")
        assert await place.make_queues("render.video") == names
        streams = Streams(place.owner._requester)
        for priority, name in zip(PRIORITIES, names, strict=True):
            answer = await streams.call(f"$JS.API.CONSUMER.INFO.{place.owner.log.stream}.{name}")
            found = json.loads(answer)["config"]
            calls = f"ap.{place.mesh}.jobs.{rank(priority)}.render.video.*"
            wanted = consumer_config(name, calls, 30.0)
            assert {field: found.get(field) for field in wanted} == wanted


async def test_what_others_are_told_of_an_inbox_does_not_lead_to_the_answers_of_the_server(
    tmp_path,
):
    async with operated(tmp_path) as place, await place.admit() as member:
        told = member.bus.new_inbox().split(".")
        assert not set(told) & set(member._connection.inbox.split(".")[2:])
        assert member._connection.inbox.startswith(f"_I.{told[1]}.")


async def test_everyone_hears_everyone_on_the_bus_once(tmp_path):
    async with (
        operated(tmp_path) as place,
        await place.enter_fully() as machine,
        await place.admit() as one,
        await place.admit() as other,
        AsyncExitStack() as stack,
    ):
        # Members call the roll through the gate, and await the answers where only they hear.
        hearing = MemberRequests(place.owner._connection, place.mesh)
        roll = roll_call_service(place.owner._connection, place.mesh)
        await stack.enter_async_context(beside(hearing.serve(roll)))
        speakers = [place.owner, machine, one, other]
        ears = [
            await stack.enter_async_context(engine.bus.subscribe("roll")) for engine in speakers
        ]
        for number, engine in enumerate(speakers):
            await engine.bus.publish("roll", b"%d" % number, reply=engine.bus.new_inbox())
        await one.bus.publish("roll", b"for another", reply=other.bus.new_inbox())
        await one.bus.publish("roll", b"too long" * 50, reply=one.bus.new_inbox())
        for ear in ears:
            messages = [await anext(ear) for _ in speakers]
            assert sorted(message.payload for message in messages) == [b"0", b"1", b"2", b"3"]
            assert len({message.reply for message in messages}) == len(speakers)
        await asyncio.sleep(0.2)
        assert not any(ear._pending for ear in ears)


async def test_a_member_asks_about_the_lanes_that_it_may_read(tmp_path):
    async with (
        operated(tmp_path) as place,
        await place.admit() as member,
        AsyncExitStack() as stack,
    ):
        connection, mesh = place.owner._connection, place.mesh
        admits = admits_readers(mesh, place.branches, lambda _user: RENDER)
        asked = roll_call_service(connection, mesh, asks=ENTRY, admits=admits)
        await stack.enter_async_context(beside(MemberRequests(connection, mesh).serve(asked)))
        ear = await stack.enter_async_context(place.owner.bus.subscribe(ENTRY.at()))
        for subject in ("jobs.job.other.1", "memo.secret.x", "jobs.job.render.video.1"):
            payload = f"ap.{mesh}.{subject}".encode()
            await member.bus.publish(ENTRY.at(), payload, reply=member.bus.new_inbox())
        assert (await anext(ear)).payload == f"ap.{mesh}.jobs.job.render.video.1".encode()


async def test_whoever_is_refused_a_roll_call_is_told_why_once(tmp_path, caplog):
    async with (
        operated(tmp_path) as place,
        await place.admit() as member,
        AsyncExitStack() as stack,
    ):
        connection, mesh = place.owner._connection, place.mesh
        admits = admits_readers(mesh, place.branches, lambda _user: RENDER)
        asked = roll_call_service(connection, mesh, asks=ENTRY, admits=admits)
        await stack.enter_async_context(beside(MemberRequests(connection, mesh).serve(asked)))
        ear = await stack.enter_async_context(place.owner.bus.subscribe(ENTRY.at()))
        mine = f"ap.{mesh}.jobs.job.render.video.1".encode()
        await member.bus.publish(ENTRY.at(), mine, reply=member.bus.new_inbox())
        assert (await anext(ear)).payload == mine
        assert "does not ask other nodes" not in caplog.text
        for _ in range(3):
            payload = f"ap.{mesh}.jobs.job.other.1".encode()
            await member.bus.publish(ENTRY.at(), payload, reply=member.bus.new_inbox())
        await until(lambda: "this machine may not read what it asks for" in caplog.text)
        await member.bus.publish(ENTRY.at(), b"x" * 300, reply=member.bus.new_inbox())
        await member.bus.publish(ENTRY.at(), mine, reply=member.bus.new_inbox())
        assert (await anext(ear)).payload == mine
        assert caplog.text.count("does not ask other nodes") == 1


# --- what a member cannot make the server do ---------------------------------------------------


async def stored(place, subject) -> int:
    """Where the newest record is, once there is one on this subject."""
    while True:
        records = (await place.owner.log.read(0, limit=500)).records
        if any(one.subject == subject for one in records):
            return records[-1].seq
        await asyncio.sleep(0.01)


async def test_an_answer_of_the_servers_never_reaches_what_the_asker_may_not(tmp_path):
    """A publisher chooses where the answer goes, and the server looks at no permission there.

    In one account with the streams, the first of these alone deletes the log.
    """
    async with operated(tmp_path) as place:
        mesh, stream = place.mesh, place.owner.log.stream
        queues = await place.make_queues("render.video")
        for number in range(3):
            await place.owner.log.append(
                f"ap.{mesh}.jobs.job.other.{number}", b"", message_id=f"{number}", expected_last=0
            )
        victim = UserKey.new()
        heard: list[bytes] = []
        async with (
            place.gate(RENDER),
            await place.admit(queues=queues) as member,
            await place.admit(key=victim),
        ):
            own = f"ap.{mesh}.jobs.job.render.video"
            purge = json.dumps({"filter": f"ap.{mesh}.jobs.job.other.>"}).encode()
            create = json.dumps({"name": "EVIL", "subjects": ["evil.>"]}).encode()
            for name, body in (("purge", purge), ("create", create), ("empty", b"")):
                member._connection.send(wire.pub(f"{own}.{name}".encode(), body))
            await call(place, 1)
            await member._connection.round_trip()
            for subject in (
                f"apg.{mesh}.{victim.public}.>",
                f"apr.{mesh}.jobs.job.other.planted.>",
            ):
                place.owner._connection.listen(subject, lambda *_: heard.append(b"heard"))
            await place.owner._connection.round_trip()
            before = await stored(place, f"{own}.empty")
            targets = {
                "delete": f"$JS.API.STREAM.DELETE.{stream}",
                "purge": f"$JS.API.STREAM.PURGE.{stream}",
                "create": "$JS.API.STREAM.CREATE.EVIL",
                "consumer": f"$JS.API.CONSUMER.DELETE.{stream}.{queues[1]}",
                "plant": f"ap.{mesh}.jobs.job.other.planted",
                "route": f"ap.{mesh}.ctl.route.render",
                "live": f"apr.{mesh}.jobs.job.other.planted.1",
                "gate": f"apg.{mesh}.{victim.public}.get",
                "system": "$SYS.REQ.CLAIMS.UPDATE",
            }
            read = f"$JS.API.DIRECT.GET.{stream}.ap.{mesh}.ctl.genesis"
            batch = b"NATS/1.0\r\nNats-Batch-Id: b%d\r\nNats-Batch-Sequence: 1\r\n\r\n"
            send = member._connection.send
            for number, target in enumerate(targets.values()):
                reply = target.encode()
                header = batch % number
                send(wire.hpub(f"{own}.batch".encode(), b"", header, reply))
                send(wire.pub(read.encode(), b"", reply))
                pull_one = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{queues[1]}".encode()
                send(wire.pub(pull_one, b'{"batch":1,"no_wait":true}', reply))
                send(
                    wire.pub(
                        f"apg.{mesh}.{member._connection.identity.user}.get".encode(), b"{}", reply
                    )
                )
                send(wire.pub(f"{own}.acked".encode(), b"%d" % number, reply))
            await member._connection.round_trip()
            await asyncio.sleep(0.5)
            assert member._connection.last_denial is None  # nothing of it needed a permission
            info = await Streams(place.owner._requester).info(stream)
            assert info["state"]["first_seq"] == 1
            assert info["state"].get("num_deleted", 0) == 0
            records = (await place.owner.log.read(0, limit=500)).records
            assert [record.subject for record in records[:3]] == [
                f"ap.{mesh}.jobs.job.other.{number}" for number in range(3)
            ]
            later = {record.subject for record in records if record.seq > before}
            assert later == {f"{own}.acked"}
            assert await Streams(place.owner._requester).info("EVIL") is None
            await Streams(place.owner._requester).call(
                f"$JS.API.CONSUMER.INFO.{stream}.{queues[1]}"
            )
            assert heard == []


# --- the keys themselves ----------------------------------------------------------------------


async def test_a_login_of_other_keys_is_refused_in_a_sentence_without_secrets(tmp_path):
    async with operated(tmp_path) as place:
        key = UserKey.new()
        others = Accounts(AccountKeys.new(), "other")
        stranger = others.user_jwt(key.public, None, expires_s=None, name="x", issued_s=now_s())
        mine = place.issuer.admit(key.public, RENDER, [], name="x", now_s=now_s())
        for jwt, kind in ((stranger, EngineDenied), (mine[:-8] + "AAAAAAAA", EngineDenied)):
            with pytest.raises(kind) as caught:
                await place.enter(key, jwt)
            text = f"{caught.value!r} {caught.value} {caught.value.hint}"
            assert "refuses this login" in text
            for secret in (key.seed, jwt, jwt.split(".")[2]):
                assert secret not in text
        with pytest.raises(Misconfigured) as mismatch:
            await place.enter(UserKey.new(), mine)
        assert "do not belong together" in mismatch.value.message
        assert claims_of(mine)["iss"] == place.accounts.keys.members.public


async def test_a_login_that_a_server_would_not_hear_out_is_refused_in_words(tmp_path):
    async with operated(tmp_path) as place:
        kinds = [f"render.kind{number:04}" for number in range(200)]

        def login(count):
            key, some = UserKey.new(), tuple(kinds[:count])
            scope = job_scope(reads=some, calls=some)
            return key, place.issuer.admit(key.public, scope, [], name="m", now_s=now_s())

        with pytest.raises(Rejected, match="more than a server takes") as caught:
            login(200)
        assert "'render.*'" in caught.value.hint
        most = max(count for count in range(10, 200, 5) if _is_heard_out(login, count))
        assert most >= 15
        key, jwt = login(most)
        async with await place.enter(key, jwt) as member:
            assert member.connected


def _is_heard_out(login, count):
    try:
        login(count)
    except Rejected:
        return False
    return True
