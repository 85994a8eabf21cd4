"""`POST /v1/a2a/deliver`: who is answered how."""

from contextlib import suppress

import msgspec
import pytest
from msgspec import UNSET

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.messages.send_rate import BURST
from antiphon.core.record.ids import agent_address
from antiphon.core.ucan import Payload, Policy
from antiphon.errors import Malformed, RateLimited, Rejected
from antiphon.runtime.identity.key_files import SeedKeyring
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.http.deliveries import Deliveries
from tests.interfaces.http.client import served
from tests.runtime.meshes import CALM
from tests.runtime.messages.post_office import Agent, agents, grant

pytestmark = [pytest.mark.processes, pytest.mark.req("S9"), pytest.mark.req("S10")]
CLOSED = msgspec.structs.replace(CALM, authority="chain")
PATH = "/v1/a2a/deliver"


async def post(node, body):
    return await node.ask(PATH, method="POST", body=body)


async def test_a_signed_message_is_stored_once_and_answered_alike():
    async with served() as node:
        sender = Agent(await node.mesh.connection())
        to = agent_address(node.mesh.owner.did, "main")
        signed = sender.sign(to, "k")
        first, again = await post(node, signed), await post(node, signed)
        assert (first.status, again.status) == (200, 200)
        assert first.json["id"] == again.json["id"]
        assert (first.json["is_duplicate"], again.json["is_duplicate"]) == (False, True)
        await sender.gate.close()


async def test_what_nobody_signed_is_refused():
    async with served() as node:
        sender = Agent(await node.mesh.connection())
        signed = sender.sign(agent_address(node.mesh.owner.did, "main"), "k")
        forged = signed.replace(b'"kind":"note"', b'"kind":"evil"')
        for bad in (b"", b"{}", b"[" * 10_000, signed[:-1], forged):
            answer = await post(node, bad)
            assert answer.status == 400, bad[:40]
            assert "detail" in answer.json
        await sender.gate.close()


async def test_a_flood_is_told_when_to_come_back_and_forgeries_use_up_nobodys_share():
    async with served() as node:
        sender = Agent(await node.mesh.connection())
        to = agent_address(node.mesh.owner.did, "main")
        deliveries = Deliveries(node.node.session)
        forged = sender.sign(to, "k").replace(b'"kind":"note"', b'"kind":"evil"')
        for _ in range(2 * int(BURST)):
            with pytest.raises(Malformed):
                await deliveries.deliver(forged)
        stored = 0
        with suppress(RateLimited):
            for stored in range(10_000):
                await deliveries.deliver(sender.sign(to, f"{stored}"))
        assert BURST <= stored < 9_999
        answer = await post(node, sender.sign(to, "more"))
        while answer.status == 200:  # a slow machine gives the sender time
            answer = await post(node, sender.sign(to, sender.session.entropy.token(8).hex()))
        assert (answer.status, answer.json["reason"]) == (429, "rate")
        assert int(answer.headers["retry-after"]) >= 1
        await deliveries.close()
        await sender.gate.close()


@pytest.mark.virtual_time
async def test_the_keys_that_a_member_makes_share_its_rate():
    async with agents("memory", 2, CLOSED) as (mesh, (member, other)):
        owner = Agent(await mesh.connection(mesh.owner))
        for one in (member, other):
            await grant(mesh, owner, one.keyring.did)
        await member.session.sync_control()
        made = []
        for _ in range(4):
            key = SeedKeyring(mesh.entropy.token(32))
            payload = Payload(
                iss=member.keyring.did,
                aud=key.did,
                sub=mesh.owner.did,
                cmd="/message/send",
                pol=Policy([]),
                nonce=mesh.entropy.token(12),
                exp=None,
                meta=UNSET,
            )
            body = DelegateBody(token=token_of(member.keyring.delegate(payload).raw))
            await write_one(member.session, Intent(UcanDelegate, body))
            made.append(Agent(await mesh.connection(key)))
        deliveries, to = Deliveries(owner.session), agent_address(mesh.owner.did, "main")
        stored = 0
        for number in range(int(BURST)):
            for sender in made:
                with suppress(RateLimited):
                    await deliveries.deliver(sender.sign(to, f"{number}"))
                    stored += 1
        assert stored == BURST, "no time passes here, so nobody is given more"
        with pytest.raises(RateLimited):
            await deliveries.deliver(member.sign(to, "mine"))
        await deliveries.deliver(other.sign(to, "another member's"))
        for one in (deliveries, owner.gate, *(sender.gate for sender in made)):
            await one.close()


@pytest.mark.virtual_time
async def test_a_key_that_is_nobodys_is_refused_before_anything_is_kept_about_it():
    async with agents("memory", 1, CLOSED) as (mesh, (stranger,)):
        owner = Agent(await mesh.connection(mesh.owner))
        deliveries, to = Deliveries(owner.session), agent_address(mesh.owner.did, "main")
        for number in range(2 * int(BURST)):
            with pytest.raises(Rejected) as refused:
                await deliveries.deliver(stranger.sign(to, f"{number}"))
            assert refused.value.reason == "no_chain"
        await grant(mesh, owner, stranger.keyring.did)
        await deliveries.deliver(stranger.sign(to, "now it may"))
        await deliveries.close()
        await owner.gate.close()


async def test_a_message_for_somebody_who_is_not_on_the_mesh_is_refused():
    async with served(CLOSED) as node:
        owner = Agent(await node.mesh.connection(node.mesh.owner))
        to = agent_address(SeedKeyring(b"x" * 32).did, "main")
        answer = await post(node, owner.sign(to, "k"))
        assert (answer.status, answer.json["reason"]) == (403, "receiver")
        await owner.gate.close()


async def test_a_body_that_is_too_large_is_not_read():
    async with served() as node:
        assert (await post(node, b"x" * 70_000)).status == 413
