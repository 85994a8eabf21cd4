"""Messages through the SDK: in one process, and between members through the gate."""

import asyncio
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import pytest

from antiphon import Mesh
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import AntiphonError, Malformed, Rejected, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.messages.message_gate import MessageGate
from antiphon.sdk.hosting import hosted_mesh
from tests.patience import NEVER_S, PATIENCE_S

SENDER = Terms(can=("message",), alias="sender")
READER = Terms(can=("read",), kinds=("render.*",), alias="reader")


@asynccontextmanager
async def hosted(directory, **members):
    """A hosted mesh with its gate: the owner's mesh and those of its members."""
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        home = directory / "owner"
        here = await stack.enter_async_context(
            hosted_mesh.found_and_host(home, name="mail", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=home))
        await stack.enter_async_context(here.gate(owner))
        opened = [owner]
        for alias, terms in members.items():
            place = StateDirectory(directory / alias)
            await hosted_mesh.redeem(
                place, hosted_mesh.invite(StateDirectory(home), terms), alias=alias
            )
            opened.append(await stack.enter_async_context(Mesh.open(home=place.path)))
        yield opened


async def first(mesh, **how):
    async with asyncio.timeout(PATIENCE_S), mesh.messages.inbox(**how) as inbox:
        return await anext(inbox)


@pytest.mark.req("S9")
async def test_a_message_in_one_process():
    async with Mesh.open(engine="memory", agent="one") as mesh:
        sent = await mesh.messages.send(
            f"{mesh.did}/two", {"n": 1}, kind="progress.build", thread="t"
        )
        assert [(one.thread, one.messages) for one in await mesh.messages.threads(agent="two")] == [
            ("t", 1)
        ]
        message = await first(mesh, agent="two")
        assert (message.id, message.payload, message.kind) == (sent, {"n": 1}, "progress.build")
        assert message.sender == mesh.messages.address
        await message.ack()
        assert await mesh.messages.threads(agent="two") == []
        assert [one async for one in mesh.messages.inbox(agent="two", wait=0)] == []


async def test_what_was_not_taken_from_an_inbox_is_given_back():
    async with Mesh.open(engine="memory") as mesh:
        for number in range(3):
            await mesh.messages.send(mesh.messages.address, number)
        one = await first(mesh)
        assert one.payload == 0
        async with aclosing(mesh.messages.inbox(wait=5)) as inbox:
            rest = [(await anext(inbox)).payload for _ in range(2)]
        assert rest == [1, 2]


async def test_a_message_is_nacked_and_dead_letters_are_shown(monkeypatch):
    monkeypatch.setattr("antiphon.core.messages.register.MAX_ATTEMPTS", 2)
    async with Mesh.open(engine="memory") as mesh:
        await mesh.messages.send(mesh.messages.address, "no")
        for attempt in (1, 2):
            message = await first(mesh)
            assert message.attempt == attempt
            await message.nack(0, error="not today")
        assert [one async for one in mesh.messages.inbox(wait=0)] == []
        (dead,) = await mesh.messages.dead()
        assert (dead.reason, dead.error, dead.payload) == ("attempts", "not today", "no")


async def test_a_question_is_answered():
    async with Mesh.open(engine="memory") as mesh:

        async def answering():
            async for question in mesh.messages.inbox(agent="oracle"):
                await question.reply({"answer": question.payload + 1})
                await question.ack()

        serving = asyncio.ensure_future(answering())
        answer = await mesh.messages.ask(f"{mesh.did}/oracle", 41, within=PATIENCE_S)
        assert answer.payload == {"answer": 42}
        # Another reader of the own inbox does not take the answer away.
        other = asyncio.ensure_future(anext(mesh.messages.inbox()))
        assert (await mesh.messages.ask(f"{mesh.did}/oracle", 1, within=PATIENCE_S)).payload == {
            "answer": 2
        }
        for task in (serving, other):
            task.cancel()
        await asyncio.gather(serving, other, return_exceptions=True)
        with pytest.raises(Unavailable, match="did not answer"):
            await mesh.messages.ask(f"{mesh.did}/nobody", 1, within=0.05)


@pytest.mark.virtual_time
@pytest.mark.req("S9")
async def test_a_reader_that_nobody_wakes_finds_its_message_within_a_minute(monkeypatch):
    """The gate has forgotten who waits: the reader asks again by itself."""
    async with Mesh.open(engine="memory", agent="one") as mesh:
        asked, really_read = [], MessageGate.read

        async def read(self, wanted, *, by):
            asked.append(asyncio.get_running_loop().time())
            if len(asked) > 1:
                return await really_read(self, wanted, by=by)
            await asyncio.sleep(wanted.wait_ms / 1000)
            return []

        monkeypatch.setattr(MessageGate, "read", read)
        began_s = asyncio.get_running_loop().time()
        waiting = asyncio.ensure_future(anext(mesh.messages.inbox()))
        await asyncio.sleep(1)
        await mesh.messages.send(mesh.messages.address, "hello")
        message = await waiting
        assert message.payload == "hello"
        assert asyncio.get_running_loop().time() - began_s <= 60
        assert len(asked) == 2, "and it does not ask all the time"


async def test_a_broadcast_tells_what_became_of_each():
    async with Mesh.open(engine="memory") as mesh:
        sent = await mesh.messages.broadcast([f"{mesh.did}/a", "nobody", f"{mesh.did}/b"], "hello")
        assert [bool(one.id) for one in sent] == [True, False, True]
        assert isinstance(sent[1].error, Rejected)
        assert (await first(mesh, agent="b")).payload == "hello"


@pytest.mark.nats
@pytest.mark.req("S11")
async def test_a_broadcast_without_a_list_goes_to_the_other_agents_that_are_online(tmp_path):
    home = tmp_path / "owner"
    async with (
        hosted(tmp_path),
        Mesh.open(home=home, agent="one") as one,
        Mesh.open(home=home, agent="two") as two,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while not (sent := await one.messages.broadcast(payload="hello")):
                await asyncio.sleep(0.05)
        assert [told.to for told in sent] == [two.messages.address], (
            "not to itself, nor to the owner's"
        )
        assert (await first(two)).payload == "hello"


@pytest.mark.parametrize(
    "how",
    [
        {"kind": "Not A Kind"},
        {"priority": 4},
        {"payload": object()},
        {"payload": "x" * 70_000},
        {"thread": "t" * 200},
        {"agent": "no/slash"},
    ],
)
async def test_what_cannot_be_sent_is_refused_with_a_reason(how):
    async with Mesh.open(engine="memory") as mesh:
        with pytest.raises((Malformed, Rejected)):
            await mesh.messages.send(mesh.messages.address, **how)


@pytest.mark.nats
@pytest.mark.req("S9")
async def test_members_write_to_one_another_through_the_gate(tmp_path):
    async with hosted(tmp_path, sender=SENDER, reader=READER) as (owner, sender, reader):
        reading = asyncio.ensure_future(first(reader, lease=NEVER_S))
        sent = await sender.messages.send(
            reader.messages.address, {"hello": 1}, kind="note", priority=2
        )
        message = await reading
        assert (message.id, message.payload, message.sender) == (
            sent,
            {"hello": 1},
            sender.messages.address,
        )
        await message.ack()
        # The owner's own gate and the members' share one store.
        await owner.messages.send("reader/client-1", "by alias")
        again = await first(reader)
        assert again.payload == "by alias"
        await again.nack(0)
        await (await first(reader)).ack()
        assert await reader.messages.threads() == []
        with pytest.raises(Rejected) as refused:
            await reader.messages.send(sender.messages.address, "no permission")
        assert refused.value.reason == "command"
        await sender.messages.send(owner.messages.address, "up")
        assert (await first(owner)).payload == "up"
        assert sender.connection.engine.messages is None


@pytest.mark.nats
@pytest.mark.req("S9")
async def test_nobody_reads_or_settles_the_messages_of_another(tmp_path):
    from antiphon.runtime.messages import message_requests
    from antiphon.runtime.messages.message_requests import MESSAGES, MessageRequest, Named

    async with hosted(tmp_path, reader=READER, other=SENDER) as (owner, reader, other):
        sent = await owner.messages.send(reader.messages.address, "private")
        line, session = other.connection.engine.gate, other.connection.session

        def signed(mesh, user, **fields):
            keyring = mesh.connection.keyring
            return message_requests.REQUESTS.sign(
                MessageRequest(agent="main", **fields),
                (keyring.did, keyring.sign),
                mesh=session.mesh,
                subject=message_requests.request_subject(user),
                at_ms=session.wall.now_ms(),
            )

        async def answer(payload, verb=MESSAGES):
            told = await line.ask(verb, payload, timeout_s=PATIENCE_S)
            return message_requests.read_answer(told)

        for do in ("read", "ack", "nack", "dead", "threads"):
            fields = {"named": (Named(sent, 0),)} if do in {"ack", "nack"} else {}
            # A request that its owner signed for its own login, sent by another.
            stolen = signed(reader, reader.connection.engine.gate.user, do=do, **fields)
            with pytest.raises(AntiphonError):
                await answer(stolen)
            forged = stolen.replace(reader.did.encode(), other.did.encode())
            with pytest.raises(AntiphonError):
                await answer(forged)
        assert (await answer(signed(other, line.user, do="read"))).handed == ()
        with pytest.raises(AntiphonError):
            await answer(signed(other, line.user, do="ack", named=(Named(sent, 0),)))
        message = await first(reader)
        assert (message.payload, message.attempt) == ("private", 1)
