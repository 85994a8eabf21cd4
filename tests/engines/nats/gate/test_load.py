"""The gate under load, among others of its kind, and while the log is being written."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from antiphon.core.authority.scope import EVERYTHING, Scope
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.engines.nats import MemberRequests, ReadService
from antiphon.engines.nats.connection import metered_subscription, wire
from antiphon.engines.nats.gate import read_service, scoped_reads
from antiphon.engines.nats.gate.message_service import message_services
from antiphon.engines.nats.gate.request_guard import Limits, Service
from antiphon.engines.nats.member.scoped_direct_get import READS_AT_ONCE
from antiphon.errors import EngineDenied, Misconfigured
from antiphon.testing.engine_suite.harness import job_id, persist, seqs
from tests.engines.nats.harness import sever, until
from tests.engines.nats.scoped_mesh import IN_RENDER, MEMBER, STRANGER, numbers, raw, scoped_mesh
from tests.job_scopes import BRANCHES

pytestmark = pytest.mark.nats


FLOOD = 500
"""Requests at once: more than are served, and not so many that they are not heard."""


async def test_a_flood_is_refused_in_words_and_harms_nobody_else():
    async with (
        scoped_mesh("render.>") as here,
        raw(here) as wire_,
        await here.log_in(STRANGER) as other,
    ):
        for n in range(FLOOD):
            wire_.send(f"{wire_.prefix}.get", {"seq": 1, "batch": 99} if n % 2 else {"seq": 1})
        served = []
        reading = asyncio.ensure_future(other.log.read(0, limit=99))
        while not reading.done():
            served.append(here.hearing.guard.in_hand(read_service.LIMITS, MEMBER))
            await asyncio.sleep(0)
        assert [one.seq for one in reading.result().records] == [1, 3, 5, 7, 11, 13]
        assert 0 < max(served) <= READS_AT_ONCE
        answers = []
        while len(answers) < FLOOD:
            header = (await wire_.heard.get())[3]
            if b"Nats-Num-Pending" not in header or header[8:9] == b" ":
                answers.append(header[9:12])
        busy = answers.count(b"503")
        assert 0 < busy <= FLOOD - READS_AT_ONCE
        await until(lambda: not here.hearing.guard.in_hand(read_service.LIMITS, MEMBER))


async def test_whoever_asks_for_far_too_much_is_not_heard_for_a_while(monkeypatch):
    monkeypatch.setattr(read_service, "LIMITS", replace(read_service.LIMITS, heard=50))
    async with (
        scoped_mesh("render.>") as here,
        raw(here) as wire_,
        await here.log_in(STRANGER) as other,
        await here.log_in() as honest,
    ):
        seen = []
        scope_of = here.gate._scope_of
        here.gate._scope_of = lambda user: seen.append(user) or scope_of(user)
        for _ in range(40):
            for _ in range(100):
                wire_.send(f"{wire_.prefix}.get", {"seq": 1})
            await wire_.connection.round_trip()
            assert len((await other.log.read(0, limit=99)).records) == 6, "the others are heard"
        assert seen.count(MEMBER) < 1000, "most of it reached nobody"
        page = await persist(lambda: honest.log.read(0, limit=99))
        assert seqs(page.records) == IN_RENDER, "it is heard again by itself"


class Answering:
    """Answers every question about messages at once, and counts them."""

    def __init__(self):
        self.asked = []

    def limit_on(self, _party, _verb):
        return None

    async def answer(self, user, _party, _verb, payload):
        self.asked.append(user)
        return payload

    def told(self, _error):
        return b"busy"


async def test_who_never_stops_asking_about_messages_is_heard_128_times_in_an_interval(monkeypatch):
    """Four times as many made others' messages take twice as long (chaos hostile)."""
    monkeypatch.setattr(metered_subscription, "INTERVAL_S", 3600.0)  # none ends meanwhile
    monkeypatch.setattr(metered_subscription, "PAUSE_FIRST_S", 3600.0)
    async with scoped_mesh("render.>") as here:
        connection, desk = here.owner.log.connection, Answering()
        hearing = MemberRequests(connection, here.mesh, [MEMBER, STRANGER])
        async with hearing.serving(*message_services(desk, put="messageput", messages="messages")):
            for user, count in ((MEMBER, FLOOD), (STRANGER, 1)):
                where, reply = f"apg.{here.mesh}.{user}.messages", f"_I.{user}.answers"
                for _ in range(count):
                    connection.send(wire.pub(where.encode(), b"?", reply.encode()))
                await connection.round_trip()
            await until(lambda: STRANGER in desk.asked)
            assert desk.asked.count(MEMBER) == 128


async def test_large_pages_are_cut_and_say_so(monkeypatch):
    monkeypatch.setattr(scoped_reads, "ANSWER_BYTES", 40_000)
    monkeypatch.setattr(scoped_reads, "NEAR_BYTES", 10_000)
    async with scoped_mesh("render.>") as here, await here.log_in() as reader:
        for n in range(30):
            await here.put(f"jobs.job.{'render.big' if n % 2 else 'secret.big'}.{n}", b"x" * 10_000)
        found, pages, more = [], 0, True
        while more:
            page = await reader.log.read(found[-1] if found else 0, limit=4096)
            found += [one.seq for one in page.records]
            pages, more = pages + 1, page.more
        assert found == IN_RENDER + [n for n in range(14, 44) if n % 2]
        assert 4 <= pages <= 12


async def test_a_scope_that_cannot_be_told_is_an_answer_too():
    async with scoped_mesh("render.>") as here, raw(here) as wire_:
        (empty,) = await wire_.gate({"seq": 1})
        assert numbers([empty]) == [1]
        here.scopes[MEMBER] = Scope()
        ((_, header),) = await wire_.gate({"seq": 1})
        assert header.startswith(b"NATS/1.0 403 this key may read nothing")
        here.scopes[MEMBER] = None  # the gate's own mistake
        ((_, header),) = await wire_.gate({"seq": 1})
        assert header.startswith(b"NATS/1.0 500 ")
        here.scopes[MEMBER] = EVERYTHING
        assert numbers(await wire_.gate({"seq": 13})) == [13]


async def test_gates_share_the_requests_of_a_mesh():
    async with scoped_mesh("render.>") as here, raw(here) as wire_:
        asked = [0, 0]

        def counting(which):
            def scope_of(_):
                asked[which] += 1
                return here.scopes[MEMBER]

            return scope_of

        await here.close_gate()
        gates = [ReadService(here.owner, counting(which), BRANCHES) for which in (0, 1)]
        serving = [asyncio.ensure_future(gate.run()) for gate in gates]
        for gate in gates:
            await gate.ready.wait()
        for n in range(60):
            if n == 30:  # they are still one queue after a reconnect
                sever(here.owner)
                await until(lambda: not here.owner.connected)
                await until(lambda: here.owner.connected)
            assert numbers(await wire_.gate({"seq": 1})) == [1]
        assert sum(asked) == 60
        assert min(asked) > 0
        assert wire_.heard.empty()
        for task in serving:
            task.cancel()
        await asyncio.wait(serving)


async def test_a_gate_needs_all_rights():
    async with scoped_mesh("render.>") as here, await here.log_in() as reader:
        with pytest.raises(Misconfigured):
            ReadService(reader, lambda _: EVERYTHING, BRANCHES)
        plain = reader._log
        reader._log = here.owner.log.__class__(
            reader._connection, reader._requester, here.mesh, replicas=1
        )
        with pytest.raises(EngineDenied):
            await ReadService(reader, lambda _: EVERYTHING, BRANCHES).run()
        reader._log = plain


# --- races ------------------------------------------------------------------------------------


def between(asked, write):
    """Ask the questions one after the other, and write once, after the first of all."""
    todo = [write]

    async def one_by_one(questions):
        answers = []
        for question in questions:
            answers += await asked([question])
            if todo:
                await todo.pop()()
        return answers

    return one_by_one


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_page_leaves_out_nothing_that_was_committed_while_it_was_read(
    replicas, monkeypatch
):
    async with scoped_mesh("a.>", "b.>") as here, raw(here) as wire_:
        here.owner.log._replicas = replicas
        for subject in ("jobs.job.a.x.1", "jobs.job.b.x.1"):
            await here.put(subject)  # 14, 15

        async def write():
            for subject in ("jobs.job.a.x.2", "jobs.job.b.x.2"):
                await here.put(subject)  # 16, 17

        real = here.gate._readings
        monkeypatch.setattr(real, "_collect", between(real._collect, write))
        question = {"seq": 15, "batch": 99, "next_by_subj": f"ap.{here.mesh}.jobs.job.>"}
        answer = await wire_.gate(question)
        assert numbers(answer) == [15]
        assert wire.header_int(answer[-1][1], b"Nats-Num-Pending") == 1
        monkeypatch.undo()
        assert numbers(await wire_.gate({**question, "seq": 16})) == [16, 17]


@pytest.mark.parametrize("verb", ["get", "leader"])
async def test_the_next_record_is_the_next_even_if_it_comes_while_the_parts_are_asked(
    verb, monkeypatch
):
    async with scoped_mesh("a.>", "b.>") as here, raw(here) as wire_:
        real, written, turn = here.gate._readings, [], asyncio.Lock()
        name = "_ask_server" if verb == "get" else "_ask_leader"
        ask = getattr(real, name)

        async def slowly(question):
            async with turn:
                found = await ask(question)
                if not written and ".job.a." in question["next_by_subj"]:
                    written.append(await here.put("jobs.job.a.x.1"))
                    await here.put("jobs.job.b.x.1")
                return found

        monkeypatch.setattr(real, name, slowly)
        question = {"seq": 14, "next_by_subj": f"ap.{here.mesh}.jobs.job.>"}
        ((payload, header),) = await wire_.gate(question, verb)
        assert written == [14]
        if verb == "get":
            assert wire.read_record(header, payload).seq == 14
        else:
            assert json.loads(payload)["message"]["seq"] == 14


async def test_what_the_server_delivers_to_a_gates_subject_is_no_request():
    """A publisher names the place of an answer, and a delivery comes under the record's subject."""
    async with scoped_mesh("render.>") as here:
        heard = []

        async def hear(asked):
            heard.append(asked.payload)

        limits = Limits(room="x", heard=8, of_party=8, in_all=8, request_bytes=999, seconds=9.0)
        service = Service(
            verbs=("blob",), answer=hear, told=lambda _: None, limits=limits, is_silent=True
        )
        connection = here.owner.log.connection
        hearing = MemberRequests(connection, here.mesh, [MEMBER])
        calls = job_subjects.calls_of(here.mesh, "normal", "render.video", below=False)
        async with (
            hearing.serving(service),
            here.owner.log.work(calls, name="render=video=normal"),
        ):
            await here.put(f"jobs.1.render.video.{job_id(77)}", b"planted")
            target = f"apg.{here.mesh}.{MEMBER}.blob".encode()
            pull = f"$JS.API.CONSUMER.MSG.NEXT.{here.owner.log.stream}.render=video=normal"
            connection.send(wire.pub(pull.encode(), b'{"batch":5,"no_wait":true}', target))
            connection.send(wire.pub(target, b"a real one"))
            await until(lambda: b"a real one" in heard)
        assert b"planted" not in heard
