"""Plans to test with, and what was derived from them."""

from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon import assembly
from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.grant_terms import Terms
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.families.jobs.derivation import Cron, Reaction
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.mesh.ops import CoordinatorBody, MeshCoordinator
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.core.manifest import author
from antiphon.core.protocol import PROTOCOL
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.writer import BEHIND, Intent, write_one
from antiphon.runtime.plans import plan_audit
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_plans import ReplicaPlans
from tests.runtime.meshes import CALM, KIND

PLANNED = "report.daily"
EVERY_SECOND = Cron(at="* * * * * *", zone="Europe/Berlin", missed="all")
AFTER_WORK = Reaction(on="succeeded", kinds="test.*")
CLOSED = replace(CALM, authority="chain")
in_virtual_time = pytest.mark.virtual_time


def plan(trigger=EVERY_SECOND, *, name="nightly", kind=PLANNED, **fields) -> PlanBody:
    manifest = author({"command": [f"@{kind}"], "args": [call_text((name,), {})], "timeout": 30})
    return PlanBody(kind=kind, name=name, manifest=manifest, trigger=trigger, **fields)


async def put(session, body: PlanBody):
    """Put a plan; its state."""
    key = plan_key(body.kind, body.name)
    lane = (await session.read(key)).lane
    await write_one(session, Intent(PlanPut, body, lane), BEHIND)
    return (await session.read(key)).lane.state


async def drop(session, body: PlanBody) -> None:
    lane = (await session.read(plan_key(body.kind, body.name))).lane
    await write_one(session, Intent(PlanDrop, DropBody(kind=body.kind, name=body.name), lane))


async def designate(owner, did: str) -> int:
    body = CoordinatorBody(node=did)
    return (await write_one(owner, Intent(MeshCoordinator, body), BEHIND)).seq


def ticks(node, plan_) -> list[int]:
    """What was derived from a plan, oldest first."""
    jobs = node.replica.ask(ReplicaPlans).derived(plan_.op_id, limit=100_000)
    return [job.derived.tick_ms for job in reversed(jobs)]


def causes(node, plan_) -> list[str]:
    jobs = node.replica.ask(ReplicaPlans).derived(plan_.op_id, limit=100_000)
    return [job.derived.job for job in reversed(jobs)]


def refused(node) -> list[str]:
    """The verdicts of rejected records."""
    found = (node.replica.record(seq) for seq in range(1, node.applied + 1))
    return [one.verdict.value for one in found if one and not one.verdict.is_accepted]


@asynccontextmanager
async def a_coordinator(mesh, path=":memory:"):
    """A full node with a key of its own that coordinates, gone after the block."""
    connection = await mesh.connection()
    owner = (await mesh.connection(mesh.owner)).session
    await designate(owner, connection.session.author.did)
    replica = Replica(path, mesh=mesh.mesh)
    try:
        async with assembly.replicating(connection, replica, caretaking=True) as node:
            yield node
    finally:
        replica.close()


async def work(*_: object) -> int:
    return 1


async def end(session, job, kind=KIND) -> None:
    await submission.cancel(session, kind, job.id, reason="")


async def grant(by, to: str, *, can=("schedule",), kinds=("report.*",), **more) -> list[str]:
    """Delegate as the owner, or as who passes its permission on; the cids."""
    terms, did = Terms(can=can, kinds=kinds, **more), by.author.did
    owner, made = by.control.owner, []
    for payload in PROTOCOL.rights.payloads(
        terms, issuer=did, audience=to, owner=owner, nonce=by.entropy.token
    ):
        granted = by.author._keyring.delegate(payload)
        await write_one(by, Intent(UcanDelegate, DelegateBody(token=token_of(granted.raw))))
        made.append(granted.cid)
    return made


class Told:
    """What was logged."""

    def __init__(self, monkeypatch) -> None:
        self.said = []
        monkeypatch.setattr(plan_audit, "_log", self)

    def error(self, event, **facts) -> None:
        self.said.append((event, facts["why"]))
