"""What the hostile member asks of services that work for it: things that are others', or endless.

The coordinator reads other jobs for whoever waits for them, and derives jobs from anybody's plans.
"""

from __future__ import annotations

from typing import Final

from antiphon.core.clock.hlc import MAX_WALL, pack
from antiphon.core.families.jobs.derivation import Cron
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobYield, YieldBody
from antiphon.core.families.jobs.planned import PlanBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.families.plans.ops import PLAN, PlanPut
from antiphon.core.manifest import author
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from simulator.actors.workload import KINDS
from simulator.hostile.hostile_member import Deed, HostileMember

NEVER_SUBMITTED: Final = "0" * 64
MOST_OTHERS: Final = 3
REPEATED: Final = 0.2


def _is_plain(job: Job) -> bool:
    return not job.concurrency and not job.replica_of and not job.quorum


async def wait_for_others(m: HostileMember) -> None:
    """Takes a job and gives it back until jobs of any kind have ended, for their results."""
    found = await m.next_job(State.PENDING, where=_is_plain)
    if found is None:
        return
    key, lane, job = found
    others = [other for other in m.referee.lanes if other != key][-40:]
    others.append((m.chance.choice(KINDS), NEVER_SUBMITTED))
    chosen = m.chance.sample(others, min(len(others), m.chance.randint(1, MOST_OTHERS)))
    if m.chance.random() < REPEATED:
        chosen += chosen[:1]
    claim = ClaimBody(kind=key[0], job=key[1], lease_ms=job.lease_ms, begin=True)
    payload = m.op(JobClaim, claim, prev=lane.job_tail, is_plain=True)
    at = codec.decode(payload.split(b"\n")[0], PROTOCOL.decoder).hlc
    seq = await m.put(m.lane_subject(key), payload)
    body = YieldBody(kind=key[0], job=key[1], fence=pack(at), reason="after", after=tuple(chosen))
    await m.put(m.lane_subject(key), m.op(JobYield, body, prev=seq, is_plain=True))


async def far_plan(m: HostileMember) -> None:
    """Puts a plan whose first tick no calendar has, or one in a zone that does not exist."""
    kind = m.chance.choice(KINDS)
    trigger = m.chance.choice(
        (
            Cron(at="0 3 * * *", zone="Pacific/Kiritimati", from_ms=MAX_WALL),
            Cron(at="* * * * * *", zone="Mars/Olympus_Mons"),
            Cron(at="0 0 30 2 *", zone="UTC"),
        )
    )
    content = author({"command": ["true"], "timeout": 30})
    body = PlanBody(kind=kind, manifest=content, name="far", trigger=trigger)
    subject = PLAN.subject(m.mesh, kind, body.name)
    await m.put(subject, m.op(PlanPut, body, prev=m.tail(subject), is_plain=True))


MISUSE: Final[dict[str, Deed]] = {deed.__name__: deed for deed in (wait_for_others, far_plan)}
