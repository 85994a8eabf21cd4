"""A schedule is judged when it is delivered, by what is known then, and at its place when read."""

from antiphon.core import manifest
from antiphon.core.authority.rules import Rules
from antiphon.core.families.grants.ops import RevokeBody, UcanRevoke
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import EMPTY
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.log.writer import Intent, write_one
from tests.runtime.meshes import KIND, a_mesh
from tests.runtime.plans.plan_meshes import grant

CLOSED = Rules(max_drift_ms=100)


async def submit(session) -> int:
    """Write a schedule, whatever the session knows that speaks against it; its sequence."""
    content = manifest.author(
        {"command": [f"@{KIND}"], "args": [call_text((1,), {})], "timeout": 30}
    )
    body = ScheduleBody(kind=KIND, manifest=content)
    return await session.commit(session.draft(JobSchedule, body, prev=0))


async def verdicts(reader, seq: int) -> tuple[Verdict, Verdict | None]:
    """What a reader says of a schedule when it is delivered, and once it has read control."""
    (record,) = await reader.log.fetch_many([seq])
    opened = reader.open(record)
    first = reader.judge_first(opened, EMPTY)
    view = await reader.read_lane(KIND, record.subject[-64:], at_least=seq)
    return first.verdict, view.verdict_of(opened.op_id)


async def test_a_delegation_that_arrives_after_the_schedule_counts():
    async with a_mesh("memory", CLOSED) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        member, reader = [(await mesh.connection()).session for _ in range(2)]
        await grant(owner, member.author.did, kinds=("test.*",))
        await member.sync_control()
        seq = await submit(member)
        assert await verdicts(reader, seq) == (Verdict.NO_CHAIN, Verdict.OK)


async def test_a_revocation_that_arrives_after_the_schedule_counts():
    async with a_mesh("memory", CLOSED) as mesh:
        owner = (await mesh.connection(mesh.owner)).session
        member, reader = [(await mesh.connection()).session for _ in range(2)]
        cids = await grant(owner, member.author.did, kinds=("test.*",))
        await member.sync_control()
        await reader.sync_control()
        for cid in cids:
            await write_one(owner, Intent(UcanRevoke, RevokeBody(cid=cid)))
        seq = await submit(member)
        assert await verdicts(reader, seq) == (Verdict.OK, Verdict.REVOKED)
