"""Attempts to store what the runs of others have not made, or to store it out of turn."""

from __future__ import annotations

from typing import Final

from antiphon.core.families.jobs.ops import (
    ArtifactBody,
    ClaimBody,
    JobArtifact,
    JobClaim,
    JobYield,
    YieldBody,
)
from antiphon.core.families.jobs.run_artifacts import count_of
from antiphon.core.families.jobs.state import HELD, State
from simulator.hostile.hostile_member import Deed, HostileMember

A_LIE: Final = '"a lie"'


async def step_of_others(m: HostileMember) -> None:
    """The next step of a job that somebody else runs, under the right fence."""
    found = await m.next_job(*HELD, where=lambda job: job.claimer != m.keyring.did)
    if found is None:
        return
    key, lane, job = found
    number = count_of(job, "step")
    body = ArtifactBody(
        kind=key[0],
        job=key[1],
        fence=job.fence,
        as_="step",
        name=f"step {number}",
        n=number,
        value=A_LIE,
    )
    await m.put(m.lane_subject(key), m.op(JobArtifact, body, prev=lane.job_tail, is_plain=True))


async def step_out_of_turn(m: HostileMember) -> None:
    """Steps in a tenure of its own: under the fence of an earlier one, or with another number."""
    found = await m.next_job(State.PENDING)
    if found is None:
        return
    key, lane, _ = found
    kind, job_id = key
    subject = m.lane_subject(key)
    claim = ClaimBody(kind=kind, job=job_id, lease_ms=5_000, begin=True)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail, is_plain=True))
    first = m.referee.lanes[key].job
    if first is None or first.claimer != m.keyring.did:
        return
    fence, number = first.fence, count_of(first, "step")
    if m.chance.random() < 0.5:
        number = max(number + m.chance.choice((-1, 1, 7)), 0)
    else:
        back = YieldBody(kind=kind, job=job_id, fence=fence, reason="other")
        await m.put(subject, m.op(JobYield, back, prev=m.tail(subject), is_plain=True))
        await m.put(subject, m.op(JobClaim, claim, prev=m.tail(subject), is_plain=True))
    body = ArtifactBody(
        kind=kind, job=job_id, fence=fence, as_="step", name="mine", n=number, value=A_LIE
    )
    await m.put(subject, m.op(JobArtifact, body, prev=m.tail(subject), is_plain=True))


STEPS_OF_OTHERS: Final[dict[str, Deed]] = {
    deed.__name__: deed for deed in (step_of_others, step_out_of_turn)
}
