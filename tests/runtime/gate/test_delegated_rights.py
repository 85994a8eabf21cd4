"""Delegated rights at run time: a closed mesh, workers with chains, and a revocation in mid-job."""

import asyncio

import pytest

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.ucan import Payload, Policy
from antiphon.errors import Rejected
from antiphon.runtime.caller import submission
from antiphon.runtime.log.writer import Intent, write_one
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines, ops_on_lane

CLOSED = Rules(max_drift_ms=100, lease_min_ms=200, lease_ms=20_000, offer_after_ms=500)


class Rights:
    """The owner of a mesh, handing out and taking back."""

    def __init__(self, mesh, owner) -> None:
        self.mesh, self.owner = mesh, owner.session

    async def give(self, connection, cmd="/job") -> str:
        payload = Payload(
            iss=self.owner.author.did,
            aud=connection.session.author.did,
            sub=self.owner.author.did,
            cmd=cmd,
            pol=Policy([["like", ".kind", "test.*"]]),
            nonce=self.mesh.entropy.token(12),
            exp=None,
        )
        granted = self.mesh.owner.delegate(payload)
        body = DelegateBody(token=token_of(granted.raw))
        await write_one(self.owner, Intent(UcanDelegate, body))
        return granted.cid

    async def take(self, cid: str) -> None:
        body = RevokeBody(cid=cid)
        await write_one(self.owner, Intent(UcanRevoke, body))


@on_both_engines
async def test_on_a_closed_mesh_only_delegated_workers_answer(engine):
    async def double(number: int) -> int:
        return 2 * number

    async with a_mesh(engine, CLOSED) as mesh:
        rights = Rights(mesh, await mesh.connection(mesh.owner))
        caller, worker = await mesh.connection(), await mesh.connection()
        with pytest.raises(Rejected) as refused:
            await call(caller.session, 1)
        assert refused.value.reason == "no_chain"
        await rights.give(caller, "/job/schedule")
        await rights.give(worker)
        await mesh.worker(double, connection=worker)
        called = await call(caller.session, 21)
        ended = await submission.wait_for_end(caller.session, KIND, called.id)
        assert ended.outputs[0].text == "42"


@on_both_engines
async def test_a_revocation_in_mid_job_ends_the_lease_and_another_takes_over(engine):
    started, release = asyncio.Event(), asyncio.Event()

    async def first(_number: int) -> str:
        started.set()
        await release.wait()
        return "first"

    async def second(_number: int) -> str:
        return "second"

    async with a_mesh(engine, CLOSED) as mesh:
        rights = Rights(mesh, await mesh.connection(mesh.owner))
        node_station = await mesh.connection()
        await rights.give(node_station)
        node = await mesh.node(connection=node_station)
        caller, one, two = [await mesh.connection() for _ in range(3)]
        await rights.give(caller, "/job/schedule")
        cid = await rights.give(one)
        await mesh.worker(first, connection=one)
        called = await call(caller.session, 1)
        await started.wait()
        await rights.take(cid)
        await rights.give(two)
        await mesh.worker(second, connection=two)
        ended = await submission.wait_for_end(caller.session, KIND, called.id)
        assert ended.outputs[0].text == '"second"', "long before the first lease would have ended"
        release.set()
        await node.reached(ended.job.ended_seq)
        told = ops_on_lane(node, called.id)
        assert "job.expire" not in dict(told), "it ended with the delegation, not with its time"
        assert [verdict for op, verdict in told if op == "job.complete"].count("ok") == 1
