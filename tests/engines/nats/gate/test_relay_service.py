"""Members' revocations and evidence: stored by the gate, which nobody can keep from storing."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon.engines.nats import MemberRequests, relay_service
from antiphon.engines.nats.gate.relay_service import LIMITS
from antiphon.errors import EngineDenied, LostRace, Misconfigured, Rejected, Unavailable
from antiphon.testing.engine_suite.harness import collect
from tests.engines.nats.harness import until
from tests.engines.nats.operated import RENDER, operated

pytestmark = pytest.mark.nats


@asynccontextmanager
async def a_box(tmp_path, accepts):
    async with operated(tmp_path) as place:
        hearing = MemberRequests(place.owner.log.connection, place.mesh)
        service = relay_service(place.owner, accepts)
        serving = asyncio.ensure_future(hearing.serve(service))
        async with place.gate(RENDER), await place.admit() as member:
            yield place, member
        serving.cancel()
        await asyncio.wait([serving])


def where(place, cid="x"):
    return f"ap.{place.mesh}.ctl.revoke.{cid}"


async def post(place, member, payload=b"letter", **how):
    settings = {"message_id": "told elsewhere", "expected_last": 99, **how}
    return await member.log.append(where(place), payload, **settings)


async def test_a_letter_is_stored_as_the_gate_says_and_under_no_other_name(tmp_path):
    heard = []

    async def accepts(user, payload):
        heard.append((user, payload))
        return where(place), f"id of {payload.decode()}".replace(" ", "-"), len(heard) - 1

    async with (
        a_box(tmp_path, accepts) as (place, member),
        member.log.follow(0, subject=f"ap.{place.mesh}.ctl.>") as batches,
    ):
        assert await post(place, member, b"one") == 1
        user = member._connection.identity.user
        assert heard == [(user, b"one")]
        (stored,) = await collect(batches, 1)
        assert (stored.subject, stored.payload) == (where(place), b"one")
        heard.append(None)
        with pytest.raises(LostRace):
            await post(place, member, b"two")


async def test_what_is_refused_is_told_and_not_stored(tmp_path):
    async def accepts(_user, _payload):
        raise Rejected("that is not yours", reason="no_chain")

    async with a_box(tmp_path, accepts) as (place, member):
        with pytest.raises(Rejected, match="not yours") as caught:
            await post(place, member)
        assert caught.value.reason == "no_chain"
        assert await place.owner.log.last() is None


async def test_a_gate_that_fails_is_worth_another_try(tmp_path):
    async def accepts(_user, _payload):
        raise ZeroDivisionError

    async with a_box(tmp_path, accepts) as (place, member):
        with pytest.raises(Unavailable, match="gate failed"):
            await post(place, member)


async def test_nobody_writes_there_past_the_gate(tmp_path):
    async def accepts(_user, _payload):
        raise Rejected("no")

    async with a_box(tmp_path, accepts) as (place, member):
        log = super(type(member.log), member.log)
        for subject in (
            where(place),
            *(f"ap.{place.mesh}.ctl.{one}.x" for one in ("evidence", "ucan")),
        ):
            with pytest.raises(EngineDenied):
                await log.append(subject, b"", message_id="x", expected_last=0)


async def test_so_many_letters_of_one_member_are_in_hand_and_no_more(tmp_path):
    may_go_on, in_hand = asyncio.Event(), 0

    async def accepts(_user, _payload):
        nonlocal in_hand
        in_hand += 1
        await may_go_on.wait()
        raise Rejected("no")

    async with a_box(tmp_path, accepts) as (place, member), await place.admit() as neighbour:
        sent = [asyncio.ensure_future(post(place, member)) for _ in range(20)]
        others = asyncio.ensure_future(post(place, neighbour))
        await until(lambda: sum(one.done() for one in sent) == len(sent) - LIMITS.of_party)
        await until(lambda: in_hand == LIMITS.of_party + 1)
        done = [one for one in sent if one.done()]
        assert all(isinstance(one.exception(), Unavailable) for one in done)
        may_go_on.set()
        await asyncio.wait([*sent, others])
        assert isinstance(others.exception(), Rejected)


async def test_only_a_connection_of_all_rights_keeps_one(tmp_path):
    async def accepts(_user, _payload):
        raise Rejected("no")

    async with a_box(tmp_path, accepts) as (_, member):
        with pytest.raises(Misconfigured):
            relay_service(member, accepts)
