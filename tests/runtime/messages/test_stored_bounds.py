"""How much one sender may have waiting in all inboxes together, and what counts."""

import asyncio

import pytest

from antiphon.core.policy.rate_limit import Allowance
from antiphon.core.record.ids import agent_address
from antiphon.errors import InboxFull, OutcomeUnknown, Unavailable
from antiphon.runtime.messages import message_gate
from antiphon.runtime.messages.message_gate import MessageGate
from tests.runtime.messages.post_office import agents


@pytest.mark.virtual_time
async def test_what_a_sender_has_waiting_in_all_inboxes_has_a_bound(monkeypatch):
    allowed = Allowance(per_s=1.0, burst=50_000)
    monkeypatch.setattr(message_gate, "STORED", allowed)
    async with agents("memory", 3) as (_, (one, two, three)):
        one.gate, two.gate = [
            MessageGate(each.session, each.session.engine.messages) for each in (one, two)
        ]
        large = b'"' + b"x" * 10_000 + b'"'

        async def send(name, **how):
            to = agent_address(two.keyring.did, name)
            await one.put(to, name, payload=large, **how)

        await one.put(two.address, "read soon", payload=large)
        for number in range(3):
            await send(f"agent{number}")
        with pytest.raises(InboxFull, match="in inboxes of this mesh"):
            await send("another")
        await one.gate.close()
        with pytest.raises(InboxFull, match="in inboxes of this mesh"):
            await send("another", gate=MessageGate(three.session, three.session.engine.messages))
        await three.put(two.address, "others are not concerned", payload=large)
        for handed in await two.read(gate=one.gate):
            await two.ack(handed, gate=one.gate)
        await send("another")
        with pytest.raises(InboxFull):
            await send("more")
        await asyncio.sleep(11_000)
        await send("more")


@pytest.mark.parametrize(
    "problem, counts", [(Unavailable("away"), False), (OutcomeUnknown("no answer"), True)]
)
async def test_what_was_surely_not_stored_does_not_count_for_its_sender(
    problem, counts, monkeypatch
):
    monkeypatch.setattr(message_gate, "STORED", Allowance(0.001, 1_500))
    async with agents("memory", 2) as (_, (one, two)):
        store = one.gate._store

        async def fails(*_, **__):
            raise problem

        with monkeypatch.context() as away:
            away.setattr(store, "write", fails)
            with pytest.raises(type(problem)):
                await one.put(two.address, "a")
        if counts:
            with pytest.raises(InboxFull):
                await one.put(two.address, "b")
        else:
            await one.put(two.address, "b")
            assert [two.key_of(handed) for handed in await two.read()] == ["b"]
