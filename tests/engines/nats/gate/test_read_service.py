"""What the gate answers: to any question, the server's own answer less what is out of scope."""

import asyncio
import json
import random

import pytest
from msgspec.structs import replace

from antiphon.core.record.subjects import matches
from antiphon.core.visible_subjects import sight_of
from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.gate import read_service, scoped_reads
from antiphon.engines.nats.log.streams import log_name
from antiphon.testing.engine_suite.harness import job_id
from tests.engines.nats.harness import until
from tests.engines.nats.scoped_mesh import MEMBER, STRANGER, numbers, raw, raw_owner, scoped_mesh
from tests.job_scopes import BRANCHES, job_scope

pytestmark = pytest.mark.nats


QUESTIONS = (
    {"seq": 1},
    {"seq": 99},
    {"seq": 2, "next_by_subj": "ap.M.ctl.>"},
    {"next_by_subj": "ap.M.jobs.job.>"},
    {"seq": 8, "next_by_subj": "ap.M.ctl.>"},
    {"last_by_subj": "ap.M.jobs.job.>"},
    {"last_by_subj": "ap.M.none"},
    {"seq": 3, "batch": 4},
    {"seq": 99, "batch": 4},
    {"seq": 3, "batch": 4, "max_bytes": 1},
    {"seq": 1, "batch": 4, "max_bytes": 1, "next_by_subj": "ap.M.ctl.>"},
    {"seq": 3, "batch": 100, "next_by_subj": "ap.M.*.*.render.>"},
    {"seq": 1, "batch": 3, "next_by_subj": "ap.M.ctl.>"},
    {"seq": 1, "batch": 1, "next_by_subj": "ap.M.seal"},
    {"multi_last": ["ap.M.ctl.*", "ap.M.jobs.job.>"]},
    {},
    b"",
    b"{",
    {"batch": 3},
    {"seq": 1, "last_by_subj": "ap.M.seal"},
)


async def test_with_every_kind_in_scope_the_gate_answers_as_the_server_does():
    async with scoped_mesh(">") as here, raw_owner(here) as wire_:
        stream = log_name(here.mesh)
        for question in QUESTIONS:
            text = question if isinstance(question, bytes) else json.dumps(question).encode()
            body = text.replace(b"M", here.mesh.encode())
            server = await wire_.ask(f"$JS.API.DIRECT.GET.{stream}", body)
            assert await wire_.gate(body) == server, body
            if b"batch" in body or b"multi_last" in body or not body.startswith(b'{"'):
                continue
            leader = await wire_.ask(f"$JS.API.STREAM.MSG.GET.{stream}", body)
            (answer,) = await wire_.gate(body, "leader")
            assert answer[0] == leader[0][0] or answer[1][:12] == b"NATS/1.0 408"


def check_batch(answer, expected, batch):
    """A run of what was expected, from its beginning, with correct counts; its length."""
    if not expected:
        assert answer[0][1].startswith(b"NATS/1.0 404")
        return 0
    shown, end = answer[:-1], answer[-1][1]
    assert numbers(answer) == expected[: len(shown)]
    assert 0 < len(shown) <= batch
    assert wire.header_int(end, b"Nats-Num-Pending") == len(expected) - len(shown)
    assert wire.header_int(end, b"Nats-Last-Sequence") == expected[len(shown) - 1]
    for at, (_, header) in enumerate(shown):
        assert wire.header_int(header, b"Nats-Num-Pending") == len(expected) - at - 1
        assert wire.header_int(header, b"Nats-Last-Sequence") == (expected[at - 1] if at else 0)
    return len(shown)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_any_answer_is_the_servers_own_less_what_is_out_of_scope(replicas, monkeypatch):
    monkeypatch.setattr(read_service, "LIMITS", replace(read_service.LIMITS, rest_s=0.0))
    chance = random.Random(replicas)
    kinds = ["a", "a.b", "a.b.c", "b", "b.a", "c"]
    places = ["jobs.job", "jobs.wait", "jobs.0", "jobs.1"]
    async with scoped_mesh("render.>") as here, raw_owner(here) as wire_:
        for n in range(60):
            place, kind = chance.choice(places), chance.choice(kinds)
            await here.put(f"{place}.{kind}.{n}" if n % 6 else f"ctl.c{n}")
        await here.owner.log.purge(f"ap.{here.mesh}.*.*.b.>", upto=40)
        here.owner.log._replicas = replicas
        log = {one.seq: one.subject for one in (await here.owner.log.read(0, limit=999)).records}
        newest = max(log)

        def some_filter():
            place = chance.choice([*places, "*", "jobs.*", "ctl"])
            kind = chance.choice(["a", "a.b", "b", "*", "*.*"])
            end = chance.choice([">", "*", "7", "c6"])
            return chance.choice([f"ap.{here.mesh}.{place}.{kind}.{end}", f"ap.{here.mesh}.>", ">"])

        for _ in range(60):
            monkeypatch.setattr(scoped_reads, "NEAR", chance.choice([3, 256]))
            reads = chance.sample([*kinds, "a.>", "a.b.>", "b.>", "render.video"], 3)
            here.scopes[MEMBER] = job_scope(reads=reads)
            visible = sight_of(here.mesh, BRANCHES, here.scopes[MEMBER])
            pattern, first = some_filter(), chance.randint(1, newest + 2)
            seen = [seq for seq, subject in log.items() if visible.sees(subject)]
            match = [seq for seq in seen if matches(pattern, log[seq])]
            ahead = [seq for seq in match if seq >= first]

            at = await wire_.gate({"seq": first})
            assert numbers(at) == [first] * (first in seen)
            for verb in ("get", "leader"):
                ask = {"seq": first, "next_by_subj": pattern}
                (after,) = await wire_.gate(ask, verb)
                (last,) = await wire_.gate({"last_by_subj": pattern}, verb)
                if verb == "get":
                    assert numbers([after]) == ahead[:1]
                    assert numbers([last]) == match[-1:]
                else:
                    found = [
                        json.loads(one[0]).get("message", {}).get("seq") for one in (after, last)
                    ]
                    assert found == [(ahead or [None])[0], (match or [None])[-1]]
            newest_of = {log[seq]: seq for seq in match}
            heads = await wire_.gate({"multi_last": [pattern]})
            assert numbers(heads) == sorted(newest_of.values())
            assert wire.header_int(heads[-1][1], b"Nats-UpTo-Sequence") == newest
            batch = chance.choice([1, 2, 5, 100])
            for ask, expected in (
                ({"seq": first, "batch": batch, "next_by_subj": pattern}, ahead),
                ({"seq": first, "batch": batch}, [seq for seq in seen if seq >= first]),
            ):
                little = await wire_.gate({**ask, "max_bytes": 1})
                assert check_batch(little, expected, batch) == min(len(expected), 1)
                left = expected
                while True:
                    length = check_batch(await wire_.gate(ask), left, batch)
                    left = left[length:]
                    if not left:
                        break
                    ask["seq"] = expected[expected.index(left[0]) - 1] + 1


@pytest.mark.req("M29")
@pytest.mark.parametrize("reads", [("render.>",), ("render.video", "render.audio.mix"), ()])
async def test_nothing_of_another_kind_can_be_had_by_any_request(reads):
    async with scoped_mesh(*reads) as here, raw(here) as wire_:
        here.scopes[MEMBER] = job_scope(reads=reads, works=("nothing.else",))
        mesh, stream = here.mesh, log_name(here.mesh)
        hidden = f"ap.{mesh}.jobs.job.secret.x.{job_id(2)}"
        patterns = [hidden, ">", f"ap.{mesh}.>", f"ap.{mesh}.*.*.secret.>", f"ap.{mesh}.jobs.job.>"]
        patterns += [
            f"ap.{mesh}.jobs.job.render.video.>",
            f"ap.{mesh}.jobs.job.*.*.*",
            "*.>",
            "$JS.>",
        ]
        patterns += [
            f"ap.{mesh}.jobs.job.render.>",
            f"ap.{mesh}.jobs.job.render.>.>",
            f"ap.{mesh}.>.secret",
        ]
        bodies = [{"seq": n} for n in range(1, 14)] + [{"seq": 1, "batch": 99}]
        for one in patterns:
            bodies += [{"seq": 1, "next_by_subj": one, "batch": 99}, {"next_by_subj": one}]
            bodies += [{"multi_last": [one, f"ap.{mesh}.ctl.>"]}, {"last_by_subj": one}]
            bodies += [{"seq": 13, "next_by_subj": one, "no_hdr": True}, {"seq": 3, "up_to_seq": 9}]
        bodies += [
            b"",
            {"no_hdr": True},
            {"start_time": "2020-01-01T00:00:00Z", "batch": 9, "next_by_subj": ">"},
        ]
        targets = [f"{wire_.prefix}.{verb}" for verb in ("get", "leader", "get.more", "put")]
        targets += [f"apg.{mesh}.{STRANGER}.get", f"$JS.API.DIRECT.GET.{stream}"]
        targets += [f"$JS.API.STREAM.MSG.GET.{stream}", f"$JS.API.CONSUMER.CREATE.{stream}"]
        targets += [f"$JS.API.STREAM.INFO.{stream}", f"$JS.API.STREAM.SNAPSHOT.{stream}"]
        targets += [f"$JS.API.DIRECT.GET.{stream}.{one}" for one in patterns]
        live = [
            f"apr.{mesh}.{one}"
            for one in ("jobs.job.>", ">", "jobs.job.secret.>", "*.*.secret.x.*")
        ]
        live += [
            f"apr.{mesh}.jobs.job.render.>",
            f"apr.{mesh}.jobs.job.render.video.>",
            f"ap.{mesh}.>",
            ">",
        ]
        live += [f"apg.{mesh}.>", f"_I.{STRANGER}.>", "_I.>", "_INBOX.>", "$JS.>"]
        for subject in live:
            wire_.connection.listen(subject, lambda *message: wire_.heard.put_nowait(message))
        for target in targets:
            for body in bodies:
                wire_.send(target, body)
            await wire_.connection.round_trip()
            await until(lambda: not here.hearing.guard.in_hand(read_service.LIMITS, MEMBER))
        for what in ("jobs.job.secret.x.7", "jobs.job.render.8", "jobs.job.render.video.deep.9"):
            await here.put(what)
        await here.owner._connection.round_trip()
        await wire_.connection.round_trip()
        await asyncio.sleep(0.1)
        heard = [wire_.heard.get_nowait() for _ in range(wire_.heard.qsize())]
        visible = sight_of(mesh, BRANCHES, here.scopes[MEMBER])
        shown = set()
        for subject, _, payload, header in heard:
            if subject.startswith(b"apr."):
                assert visible.sees("ap" + subject.decode()[3:])
            elif payload.startswith((b'{"type"', b'{"message"')):
                message = json.loads(payload).get("message")
                assert message is None or visible.sees(message["subject"])
            elif b"Nats-Sequence" in header:
                record = wire.read_record(header, payload)
                assert visible.sees(record.subject)
                shown.add(record.seq)
            if payload.startswith(b"ap."):  # a record's payload is its own subject
                assert visible.sees(payload.decode())
        everything = (await here.owner.log.read(0, limit=99)).records
        assert shown == {one.seq for one in everything[:13] if visible.sees(one.subject)}


async def test_an_answer_goes_to_the_askers_own_inbox_and_nowhere_else():
    async with scoped_mesh("render.>") as here, raw(here) as wire_:
        before = await here.owner.log.newest_seq()
        for reply in (
            f"ap.{here.mesh}.jobs.job.secret.x.1",
            f"$JS.API.STREAM.PURGE.{log_name(here.mesh)}",
            f"_I.{STRANGER}.1",
            f"_I.{MEMBER}",
            f"_I.{MEMBER}x.1",
            f"_I.{MEMBER}.>",
        ):
            wire_.send(f"{wire_.prefix}.get", {"seq": 1}, reply=reply)
        assert numbers(await wire_.gate({"seq": 1})) == [1]
        assert await here.owner.log.newest_seq() == before
        assert len((await here.owner.log.read(0, limit=99)).records) == before
