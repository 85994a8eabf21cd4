"""The message gate: put once, handed out in order, settled under a lease, or refused."""

import asyncio

import pytest

from antiphon.core.authority.rules import Rules
from antiphon.core.messages import dead_letters, inbox, register, send_rate
from antiphon.core.record.ids import agent_address
from antiphon.errors import (
    Held,
    InboxFull,
    Malformed,
    OutcomeUnknown,
    RateLimited,
    Rejected,
)
from antiphon.runtime import rate_books
from antiphon.runtime.messages import open_inboxes
from antiphon.runtime.messages.message_gate import MessageGate
from tests.patience import PATIENCE_S
from tests.runtime.meshes import on_both_engines
from tests.runtime.messages.post_office import Agent, agents, grant, revoke

CHAIN = Rules(authority="chain", max_drift_ms=100)


async def keys(agent, **how):
    return [agent.key_of(one) for one in await agent.read(**how)]


@on_both_engines
@pytest.mark.req("S9")
async def test_a_message_is_stored_once_and_handed_out_until_it_is_acknowledged(engine):
    async with agents(engine, 2) as (_, (one, two)):
        first = await one.put(two.address, "k")
        again = await one.put(two.address, "k")
        assert (first.id, first.is_duplicate) == (again.id, False)
        assert again.is_duplicate
        (handed,) = await two.read()
        assert (handed.id, handed.attempt) == (first.id, 1)
        assert await two.read() == []
        await two.ack(handed)
        await two.ack(handed)  # again changes nothing
        assert await two.read() == []
        assert (await one.put(two.address, "k")).is_duplicate


@on_both_engines
@pytest.mark.req("S9")
async def test_a_gate_that_begins_anew_goes_on_where_the_last_one_ended(engine):
    async with agents(engine, 2) as (_, (one, two)):
        for number in range(5):
            await one.put(two.address, f"k{number}", thread="t")
        (held,) = await two.read()
        for agent in (one, two):
            await agent.gate.close()
            agent.gate = MessageGate(agent.session, agent.session.engine.messages)
        assert await two.read() == []  # the lease of the first holds up its thread
        assert (await one.put(two.address, "k3", thread="t")).is_duplicate
        await two.ack(held)
        for number in range(1, 5):
            (held,) = await two.read()
            assert two.key_of(held) == f"k{number}"
            await two.ack(held)
        assert (await one.put(two.address, "k0", thread="t")).is_duplicate


@on_both_engines
async def test_gates_of_one_mesh_keep_one_order(engine):
    async with agents(engine, 3) as (_, (one, two, three)):
        other = three.gate
        await one.put(two.address, "a", thread="t")
        await one.put(two.address, "b", thread="t", gate=other)
        (held,) = await two.read(gate=other)
        assert two.key_of(held) == "a"
        assert await two.read() == []
        await two.ack(held)
        assert await keys(two, gate=other) == ["b"]


@on_both_engines
async def test_two_gates_hand_out_a_message_once(engine):
    async with agents(engine, 3) as (_, (one, two, three)):
        for number in range(20):
            await one.put(two.address, f"k{number}")
        read = await asyncio.gather(
            *(two.read(gate=gate, limit=4) for gate in (two.gate, three.gate) * 5)
        )
        found = [two.key_of(handed) for some in read for handed in some]
        assert len(found) == len(set(found))
        assert set(found) <= {f"k{number}" for number in range(20)}


@on_both_engines
async def test_a_reader_that_waits_is_woken_by_a_message(engine):
    async with agents(engine, 3) as (_, (one, two, three)):
        reading = asyncio.ensure_future(two.read(wait_ms=60_000))
        await asyncio.sleep(0.05)
        begun = asyncio.get_running_loop().time()
        await one.put(two.address, "k", gate=three.gate)  # of another gate, too
        async with asyncio.timeout(PATIENCE_S):
            (handed,) = await reading
        assert two.key_of(handed) == "k"
        assert asyncio.get_running_loop().time() - begun < 30


@pytest.mark.virtual_time
async def test_a_reader_that_waits_asks_the_engine_for_nothing():
    async with agents("memory", 2) as (_, (__, two)):
        asked = []
        connection = two.session.engine._connection
        read = connection.read_lagging

        async def counted(what, work):
            asked.append(what)
            return await read(what, work)

        connection.read_lagging = counted
        await two.read(wait_ms=1)
        before = len(asked)
        await two.read(wait_ms=55_000)
        assert len(asked) - before < 12


@pytest.mark.virtual_time
async def test_a_reader_of_one_thread_does_not_ask_again_because_another_has_messages():
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "elsewhere", thread="other")
        await one.put(two.address, "nowhere")
        asked = []
        sync = two.session.sync_control

        async def counted():
            asked.append(1)
            return await sync()

        two.session.sync_control = counted
        reading = asyncio.ensure_future(two.read(thread="mine", wait_ms=50_000))
        await asyncio.sleep(40)
        assert len(asked) < 5
        await one.put(two.address, "k", thread="mine")
        (handed,) = await reading
        assert two.key_of(handed) == "k"


@pytest.mark.virtual_time
async def test_of_many_readers_that_one_message_wakes_few_ask_again():
    async with agents("memory", 2) as (_, (one, two)):
        asked = []
        fresh = two.gate._control.fresh

        async def counted():
            asked.append(1)
            return await fresh()

        two.gate._control.fresh = counted
        reading = [asyncio.ensure_future(two.read(limit=1, wait_ms=50_000)) for _ in range(100)]
        await asyncio.sleep(1)
        asked.clear()
        await one.put(two.address, "k")
        await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(1)
        assert sum(one.done() for one in reading) == 1
        assert len(asked) < 20
        assert sum(len(some) for some in await asyncio.gather(*reading)) == 1


@pytest.mark.virtual_time
async def test_a_read_that_is_cut_short_leaves_nothing_taken():
    async with agents("memory", 2) as (_, (one, two)):
        for number in range(4):
            await one.put(two.address, f"dead{number}", ttl_ms=1)
        await one.put(two.address, "live")
        await asyncio.sleep(1)
        store = two.session.engine.messages
        write, stuck = store.write, asyncio.Event()

        async def never(*_args, **_kwargs):
            stuck.set()
            await asyncio.Event().wait()

        store.write = never
        reading = asyncio.ensure_future(two.read())
        await stuck.wait()
        reading.cancel()
        await asyncio.wait([reading])
        store.write = write
        assert await keys(two) == ["live"]
        assert len(await two.gate.dead(two.address, by=two.keyring.did)) == 4


@pytest.mark.virtual_time
async def test_an_older_session_of_a_reader_waits_like_any_other():
    async with agents("memory", 2) as (_, (one, two)):
        for key in ("a", "b"):
            await one.put(two.address, key)
        await two.read(lease_ms=3_600_000)
        older = two.reading
        two.open()
        assert len(await two.read(limit=1)) == 1
        newer, two.reading = two.reading, older
        assert await two.read(wait_ms=30_000) == []
        two.reading = newer
        assert await keys(two) == ["b"]


@on_both_engines
@pytest.mark.req("S15")
async def test_what_was_given_back_comes_again_and_holds_up_its_thread(engine):
    async with agents(engine, 2) as (_, (one, two)):
        for key in ("a", "b"):
            await one.put(two.address, key, thread="t")
        await one.put(two.address, "other")
        handed = {two.key_of(one): one for one in await two.read()}
        assert set(handed) == {"a", "other"}
        await two.nack(handed["a"], error="no room")
        async with asyncio.timeout(PATIENCE_S):
            (again,) = await two.read(wait_ms=30_000)
        assert (two.key_of(again), again.attempt) == ("a", 2)
        await two.ack(again)
        assert await keys(two) == ["b"]


@pytest.mark.virtual_time
async def test_an_old_lease_does_not_settle_what_another_has():
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "k")
        (held,) = await two.read(lease_ms=1_000)
        await asyncio.sleep(2)
        (again,) = await two.read()
        for settle in (two.ack, two.nack):
            with pytest.raises(Held):
                await settle(held)
        await two.ack(again)


@pytest.mark.virtual_time
async def test_a_reader_that_is_opened_again_has_its_messages_at_once():
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "k", thread="t")
        (held,) = await two.read(lease_ms=3_600_000)
        two.open()
        (again,) = await two.read(lease_ms=3_600_000)
        assert (again.id, again.attempt) == (held.id, 2)
        with pytest.raises(Held):
            await two.ack(held)


@pytest.mark.virtual_time
async def test_what_got_lost_on_the_way_to_its_reader_is_handed_out_again():
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "a")
        await one.put(two.address, "b")
        (kept,) = await two.read(limit=1, lease_ms=3_600_000)
        (lost,) = await two.read(limit=1, lease_ms=3_600_000)
        assert await two.read() == []
        (again,) = await two.read(holding=frozenset({kept.id}))
        assert again.id == lost.id
        await two.ack(kept)


@pytest.mark.virtual_time
async def test_a_message_nobody_handles_is_a_dead_letter():
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "tried", thread="t")
        await one.put(two.address, "late", thread="t", ttl_ms=60_000)
        await one.put(two.address, "next", thread="t")
        for _ in range(register.MAX_ATTEMPTS):
            (handed,) = await two.read(wait_ms=60_000)
            assert two.key_of(handed) == "tried"
            await two.nack(handed, error="cannot")
        await asyncio.sleep(120)
        assert await keys(two, wait_ms=60_000) == ["next"]
        letters = await two.gate.dead(two.address, by=two.keyring.did)
        assert {(two.key_of(one), one.reason, one.error) for one in letters} == {
            ("tried", "attempts", "cannot"),
            ("late", "expired", ""),
        }


@pytest.mark.virtual_time
async def test_dead_letters_are_bounded(monkeypatch):
    monkeypatch.setattr(dead_letters, "MAX_DEAD", 3)
    async with agents("memory", 2) as (_, (one, two)):
        for number in range(6):
            await one.put(two.address, f"k{number}", ttl_ms=1)
        await asyncio.sleep(1)
        while await two.read():
            pass
        await asyncio.sleep(2)
        letters = await two.gate.dead(two.address, by=two.keyring.did)
        assert len({two.key_of(letter) for letter in letters}) == len(letters) == 3


async def bury(sender, to, count, size=1):
    """So many messages that die at once, each of about so many bytes."""
    for number in range(count):
        await sender.put(to.address, f"k{number}", ttl_ms=1, payload=b'"%s"' % (b"x" * size))
        await asyncio.sleep(0.5)
        assert await to.read() == []


def counted(store):
    """The bytes that are read from a store from now on, by method."""
    read = {"get": 0, "list": 0}
    get, list_ = store.get, store.list

    async def gets(key):
        found = await get(key)
        read["get"] += len(found.value) if found is not None else 0
        return found

    async def lists(*args, **kwargs):
        page, more = await list_(*args, **kwargs)
        read["list"] += sum(len(one.note) + len(getattr(one, "value", b"")) for one in page)
        return page, more

    store.get, store.list = gets, lists
    return read


@pytest.mark.virtual_time
async def test_looking_at_dead_letters_reads_what_is_shown_and_burying_reads_none():
    async with agents("memory", 2) as (_, (one, two)):
        await bury(one, two, 12, size=50_000)
        read = counted(two.session.engine.messages)
        (letter,) = await two.gate.dead(two.address, by=two.keyring.did, limit=1)
        assert two.key_of(letter) == "k11"
        assert read["get"] < 60_000
        await one.put(two.address, "more", ttl_ms=1)
        await asyncio.sleep(1)
        assert await two.read() == []
        assert read["get"] + read["list"] < 70_000
        shown = await two.gate.dead(two.address, by=two.keyring.did)
        assert [two.key_of(one) for one in shown] == [*(f"k{n}" for n in range(5, 12)), "more"]
        assert await two.gate.dead(two.address, by=two.keyring.did, limit=0) == []


@pytest.mark.virtual_time
async def test_dead_letters_are_bounded_in_bytes_over_all_gates(monkeypatch):
    monkeypatch.setattr(dead_letters, "MAX_DEAD_BYTES", 200_000)
    async with agents("memory", 3) as (_, (one, two, three)):
        await bury(one, two, 6, size=60_000)
        for gate in (two.gate, three.gate):
            shown = await gate.dead(two.address, by=two.keyring.did)
            assert [two.key_of(letter) for letter in shown] == ["k3", "k4", "k5"]
        await asyncio.sleep(register.DEAD_MS / 1000 + 1)
        assert await two.gate.dead(two.address, by=two.keyring.did) == []


@pytest.mark.virtual_time
async def test_a_gate_that_begins_reads_notes_and_no_messages():
    async with agents("memory", 2) as (_, (one, two)):
        for number in range(20):
            await one.put(two.address, f"k{number}", payload=b'"' + b"x" * 60_000 + b'"')
        store = two.session.engine.messages
        read, gate = counted(store), MessageGate(two.session, store)
        assert [one.messages for one in await gate.threads(two.address, by="x")] == [20]
        assert read["get"] + read["list"] < 20_000
        await gate.close()


@pytest.mark.virtual_time
async def test_an_asker_that_names_many_inboxes_makes_room_with_its_own(monkeypatch):
    monkeypatch.setattr(open_inboxes, "MAX_OPEN_BY", 5)
    async with agents("memory", 2) as (_, (one, two)):
        await one.put(two.address, "k")
        listed, list_ = [], two.session.engine.messages.list

        async def lists(prefix, **how):
            listed.append(prefix)
            return await list_(prefix, **how)

        two.session.engine.messages.list = lists
        await two.gate.threads(two.address, by="calm")
        for number in range(20):
            address = agent_address(two.keyring.did, f"agent{number}")
            assert await two.gate.threads(address, by="busy") == []
            assert len(two.gate._boxes) <= 6
        listed.clear()
        await two.gate.threads(two.address, by="calm")
        assert listed == []


@pytest.mark.virtual_time
async def test_what_all_inboxes_remember_has_a_bound(monkeypatch):
    monkeypatch.setattr(open_inboxes, "MAX_WEIGHT", 10)
    monkeypatch.setattr(open_inboxes, "WEIGH_EVERY", 1)
    async with agents("memory", 2) as (_, (one, two)):
        for number in range(6):
            for key in "abc":
                await one.put(agent_address(two.keyring.did, f"agent{number}"), key)
        assert 1 <= len(one.gate._boxes) <= 4
        to = agent_address(two.keyring.did, "agent0")
        assert (await one.put(to, "a")).is_duplicate  # forgotten here, and known to the store


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_back_pressure_a_full_inbox_tells_its_senders_and_nobody_else(monkeypatch):
    monkeypatch.setattr(inbox, "MAX_OF_PARTY", 3)
    monkeypatch.setattr(inbox, "MAX_MESSAGES", 4)
    async with agents("memory", 4) as (_, (one, two, three, four)):
        for number in range(3):
            await one.put(two.address, f"k{number}")
        with pytest.raises(InboxFull, match="this sender"):
            await one.put(two.address, "k3")
        assert (await one.put(two.address, "k1")).is_duplicate
        await three.put(two.address, "other")
        with pytest.raises(InboxFull, match="4 messages"):
            await four.put(two.address, "late")
        await one.put(three.address, "elsewhere")
        (handed, *_) = await two.read()
        await two.ack(handed)
        await one.put(two.address, "k3")


@pytest.mark.virtual_time
async def test_no_sender_fills_an_inbox_with_bytes(monkeypatch):
    monkeypatch.setattr(inbox, "MAX_BYTES_OF_PARTY", 200_000)
    async with agents("memory", 3) as (_, (one, two, three)):
        large = b'"' + b"x" * 60_000 + b'"'
        for number in range(3):
            await one.put(two.address, f"k{number}", payload=large)
        with pytest.raises(InboxFull, match="of this sender"):
            await one.put(two.address, "k3", payload=large)
        await one.put(two.address, "small")
        await three.put(two.address, "other", payload=large)


async def refusals(sender, to, count, **how):
    """What a sender is told while it sends so many."""
    told = []
    for number in range(count):
        try:
            await sender.put(to.address, f"k{number}", **how)
        except RateLimited as limited:
            told.append(limited)
    return told


@pytest.mark.exact_times
@pytest.mark.virtual_time
@pytest.mark.req("S15")
async def test_rate_limit_a_flood_is_told_and_another_gate_knows_of_it():
    async with agents("memory", 3) as (_, (one, two, three)):
        told = await refusals(one, two, int(send_rate.BURST) + 100)
        assert len(told) == 100
        assert all(0 < one.retry_s < 1 for one in told)
        await three.put(two.address, "others are not concerned")
        await one.gate.close()
        for gate in (MessageGate(one.session, one.session.engine.messages), three.gate):
            assert await refusals(one, two, 40, gate=gate)
            await gate.close()
        await asyncio.sleep(10)
        await one.put(two.address, "later")


@pytest.mark.exact_times
@pytest.mark.virtual_time
async def test_rate_limit_gates_add_up_what_each_of_them_counted():
    async with agents("memory", 3) as (_, (one, two, three)):
        gates, stored = (one.gate, two.gate), 0
        for number in range(2 * int(send_rate.BURST)):
            try:
                await one.put(three.address, f"k{number}", gate=gates[number % 2])
                stored += 1
            except RateLimited:
                continue
        assert stored <= send_rate.BURST * (1 + 2 * rate_books.SAVE_AT)


@pytest.mark.virtual_time
async def test_what_is_no_message_for_this_inbox_is_refused():
    async with agents("memory", 3) as (mesh, (one, two, three)):
        good = one.sign(two.address, "k")
        for receiver, payload in (
            (two.address, b"{}"),
            (two.address, good.replace(b'"note"', b'"nota"')),
            (three.address, good),
            (two.address, good + b" " * 70_000),
            (two.address, one.sign(two.address, "k", at_ms=mesh.wall.now_ms() - 10**6)),
        ):
            with pytest.raises(Malformed):
                await one.gate.put(receiver, payload, by="x")
        assert await two.read() == []


# --- rights -------------------------------------------------------------------------------------


@on_both_engines
@pytest.mark.req("S9")
async def test_dispatch_and_revoke_race_nothing_passes_after_the_revocation(engine):
    async with agents(engine, 3, CHAIN) as (mesh, (_, two, three)):
        owner = await mesh.connection(mesh.owner)
        (cid,) = await grant(mesh, owner, two.keyring.did)
        (other,) = await grant(mesh, owner, three.keyring.did)
        await three.put(two.address, "before")
        await three.put(two.address, "held")
        held, _ = await two.read()

        stored, begun = [], asyncio.Event()

        async def flood():
            while True:
                await three.put(two.address, f"a{len(stored)}")
                stored.append(1)
                if len(stored) == 5:
                    begun.set()

        sending = asyncio.ensure_future(flood())
        await begun.wait()
        await revoke(owner, other)
        with pytest.raises(Rejected) as refused:
            await sending
        assert refused.value.reason == "no_chain"
        with pytest.raises(Rejected, match="may not send"):
            await three.put(two.address, "after")
        await revoke(owner, cid)
        for attempt in (two.read(), two.ack(held), two.nack(held)):
            with pytest.raises(Rejected, match="revoked"):
                await attempt
        sender = Agent(owner)
        with pytest.raises(Rejected, match="not on this mesh"):
            await sender.put(two.address, "k")
        await sender.gate.close()


@pytest.mark.virtual_time
async def test_a_delegation_may_be_for_some_kinds_of_messages_only():
    async with agents("memory", 2, CHAIN) as (mesh, (one, two)):
        owner = await mesh.connection(mesh.owner)
        with pytest.raises(Rejected) as nobody:
            await one.put(two.address, "k")
        await grant(mesh, owner, two.keyring.did, can=("read",))
        await grant(mesh, owner, one.keyring.did, kinds=("progress.*",))
        await one.put(two.address, "k", kind="progress.build")
        with pytest.raises(Rejected) as refused:
            await one.put(two.address, "k2", kind="note")
        with pytest.raises(Rejected) as unable:
            await two.put(one.address, "k", kind="progress.build")
        assert [one.value.reason for one in (nobody, refused, unable)] == [
            "no_chain",
            "policy",
            "command",
        ]


# --- faults -------------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_a_write_without_an_answer_is_looked_up():
    async with agents("memory", 2) as (_, (one, two)):
        store = one.session.engine.messages
        write = store.write
        lost = 0

        async def unanswered(*args, **kwargs):
            nonlocal lost
            await write(*args, **kwargs)
            lost += 1
            raise OutcomeUnknown("no answer")

        store.write = unanswered
        done = await one.put(two.address, "k")
        assert (done.is_duplicate, lost) == (False, 1)
        (handed,) = await two.read()
        assert handed.id == done.id
