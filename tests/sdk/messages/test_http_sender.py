"""Messages over HTTP from a node outside the engine: on disk first, delivered once."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from antiphon import HttpSender, Misconfigured, Rejected
from antiphon.core.record.ids import agent_address
from antiphon.runtime import retries
from antiphon.runtime.messages.message_gate import MessageGate, Reading
from antiphon.sdk.messages import http_sender
from tests.interfaces.http.client import served
from tests.patience import PATIENCE_S
from tests.runtime.meshes import CALM
from tests.runtime.messages.post_office import grant

pytestmark = [pytest.mark.processes, pytest.mark.req("S9"), pytest.mark.req("S10")]
CLOSED = msgspec.structs.replace(CALM, authority="chain")
NOWHERE = "http://127.0.0.1:1"
"""Where nobody answers."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """The pauses between tries, which take no time here."""
    seen = []

    async def pause(delay_s):
        seen.append(delay_s)
        await asyncio.sleep(0)

    class Waits:
        sleep = staticmethod(pause)

    monkeypatch.setattr(retries, "asyncio", Waits)
    monkeypatch.setattr(http_sender, "AGAIN_S", 0.05)
    return seen


@asynccontextmanager
async def a_node(rules=CALM):
    """A node with HTTP; its address, and the reader of its owner's inbox."""
    async with served(rules) as node:
        session = node.node.session
        gate = MessageGate(session, session.engine.messages)
        address = agent_address(node.mesh.owner.did, "main")

        async def read():
            asked = Reading(address=address, session="1-s", limit=64)
            handed = await gate.read(asked, by=node.mesh.owner.did)
            return [one.id for one in handed]

        node_ = (f"http://127.0.0.1:{node.port}", session.mesh, address, read, node.mesh)
        try:
            yield node_
        finally:
            await gate.close()


async def test_a_message_is_stored_in_the_inbox_and_not_left_on_disk(tmp_path, pauses):
    async with a_node() as (url, mesh, to, read, _):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            sent = await sender.send(to, {"branch": "fix-7"})
            assert sent.is_delivered
            assert sender.waiting == 0
        assert await read() == [sent.id]
    assert pauses == []


class Watched:
    """A client that shows what is on disk when a message goes out, and may be cut off then."""

    def __init__(self, client, spool, error=None):
        self._client, self._spool, self._error = client, spool, error
        self.on_disk: list[bytes] = []

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def post(self, url, **given):
        self.on_disk += [file.read_bytes() for file in self._spool.glob("*.json")]
        if self._error is not None:
            raise self._error
        return await self._client.post(url, **given)


async def test_a_message_is_on_disk_before_it_goes_out(tmp_path):
    async with a_node() as (url, mesh, to, read, _):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            sender._client = seen = Watched(sender._client, sender._spool)
            sent = await sender.send(to, {"branch": "fix-7"})
        assert seen.on_disk
        assert msgspec.json.decode(seen.on_disk[0])["payload"] == {"branch": "fix-7"}
        assert await read() == [sent.id]


async def test_what_a_process_that_died_was_sending_the_next_one_delivers(tmp_path):
    class Died(BaseException):
        pass

    async with a_node() as (url, mesh, to, read, _):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            sender._client = Watched(sender._client, sender._spool, Died())
            with pytest.raises(Died):
                await sender.send(to, "hello", key="once")
            sender._again.cancel()
        async with HttpSender(url, mesh=mesh, home=tmp_path) as later:
            async with asyncio.timeout(PATIENCE_S):
                while later.waiting:
                    await asyncio.sleep(0.01)
        assert len(await read()) == 1


@pytest.mark.req("S15")
async def test_without_an_answer_it_is_tried_four_times_and_stays_on_disk(tmp_path, pauses):
    to = agent_address("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp", "main")
    async with HttpSender(NOWHERE, mesh="a" * 16, home=tmp_path) as sender:
        sent = await sender.send(to, "hello")
        assert not sent.is_delivered
        assert "does not answer" in sent.problem
        assert sender.waiting == 1
    for pause, least in zip(pauses, (0.5, 1.0, 2.0), strict=True):
        assert least <= pause < least + 0.5


async def test_what_is_left_is_delivered_by_itself_when_the_node_answers(tmp_path):
    async with a_node() as (url, mesh, to, read, _):
        async with HttpSender(NOWHERE, mesh=mesh, home=tmp_path) as sender:
            sent = [await sender.send(to, number, thread="t") for number in range(3)]
        async with HttpSender(url, mesh=mesh, home=tmp_path) as later:
            async with asyncio.timeout(PATIENCE_S):
                while later.waiting:
                    await asyncio.sleep(0.01)
        assert await read() == [sent[0].id], "of a thread one at a time, the oldest first"


async def test_the_same_message_again_is_stored_once(tmp_path):
    async with a_node() as (url, mesh, to, read, _):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            first = await sender.send(to, 1, key="once")
            again = await sender.send(to, 1, key="once")
        assert first.id == again.id
        assert await read() == [first.id]


async def test_who_has_no_permission_is_refused_and_nothing_stays(tmp_path):
    async with a_node(CLOSED) as (url, mesh, to, read, _):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            with pytest.raises(Rejected, match="may not send"):
                await sender.send(to, "hello")
            assert sender.waiting == 0
        assert await read() == []


async def test_the_chain_that_leads_to_the_sender_is_enough(tmp_path):
    async with a_node(CLOSED) as (url, mesh, to, read, under_test):
        async with HttpSender(url, mesh=mesh, home=tmp_path) as sender:
            await grant(under_test, await under_test.connection(under_test.owner), sender.did)
            sent = await sender.send(to, "hello")
        assert await read() == [sent.id]


def test_messages_do_not_travel_in_the_clear(tmp_path):
    with pytest.raises(Misconfigured, match="in the clear"):
        HttpSender("http://mesh.example:7464", mesh="a" * 16, home=tmp_path)


async def test_a_sender_that_is_not_open_says_so(tmp_path):
    sender = HttpSender(NOWHERE, mesh="a" * 16, home=tmp_path)
    for use in (lambda: sender.did, lambda: sender.address):
        with pytest.raises(Misconfigured, match="not open"):
            use()


async def test_what_is_refused_later_is_put_aside_and_the_rest_delivered(tmp_path):
    async with a_node(CLOSED) as (url, mesh, to, read, under_test):
        async with HttpSender(NOWHERE, mesh=mesh, home=tmp_path) as sender:
            await sender.send(agent_address(sender.did, "nobody"), "to no member")
            sent = await sender.send(to, "hello")
            await grant(under_test, await under_test.connection(under_test.owner), sender.did)
        (tmp_path / "undelivered" / "0-torn.json").write_text("{")
        async with HttpSender(url, mesh=mesh, home=tmp_path) as later:
            async with asyncio.timeout(PATIENCE_S):
                while later.waiting:
                    await asyncio.sleep(0.01)
        assert sent.id in await read()
        assert (tmp_path / "undelivered" / "refused" / "0-torn.json").exists()
