"""A key that comes back to a job which it held when it died begins anew, under a new fence."""

import pytest

from antiphon import JobContext
from antiphon.core.authority.rules import Rules
from antiphon.core.clock import hlc
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.state import State
from antiphon.runtime.caller import submission
from antiphon.runtime.identity.key_files import SeedKeyring
from tests.runtime.meshes import KIND, a_mesh, call, on_both_engines_in_real_time

LONG_LEASES = Rules(authority="open")


async def held_by_the_dead(mesh, keyring, job):
    """Claim as a worker that dies right after: the fence that it ran under."""
    session = (await mesh.connection(keyring)).session
    view = await session.read_lane(KIND, job)
    body = ClaimBody(kind=KIND, job=job, lease_ms=view.lane.job.lease_ms, begin=True)
    draft = session.draft(JobClaim, body, prev=view.lane.job_tail)
    await session.commit(draft)
    return hlc.pack(draft.op.hlc)


@pytest.mark.parametrize("handed_out_before", [False, True])
@on_both_engines_in_real_time
async def test_a_restarted_worker_does_not_run_under_the_fence_of_its_dead_self(
    engine, handed_out_before
):
    fences, keyring = [], SeedKeyring(b"k" * 32)

    async def note(*, ctx: JobContext) -> int:
        fences.append((ctx.fence, ctx.attempt))
        return 1

    async with a_mesh(engine, LONG_LEASES) as mesh:
        caller = (await mesh.connection()).session
        called = await call(caller)
        before = await held_by_the_dead(mesh, keyring, called.id)
        if handed_out_before:
            calls = job_subjects.calls_of(mesh.mesh, "normal", KIND, below=False)
            async with caller.log.work(
                calls, name=job_subjects.queue_name(KIND, "normal")
            ) as queue:
                queue.grant(1)
                (await queue.next()).nak()
        await mesh.worker(note, connection=await mesh.connection(keyring))
        ended = await submission.wait_for_end(caller, KIND, called.id)
        assert ended.job.state is State.SUCCEEDED
        [(fence, attempt)] = fences
        assert fence > before
        assert attempt == 2, "a run that was lost counts, or a job that kills workers never ends"
