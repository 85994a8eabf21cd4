"""The hostile member's attacks: one function each, listed in `DEEDS`; the fault schedule says when.

All of it must bounce off the rules. What it keeps from others by its own rights is in
`starvation.py`.
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.ops import (
    CancelBody,
    ClaimBody,
    CompleteBody,
    ExpireBody,
    JobCancel,
    JobClaim,
    JobComplete,
    JobExpire,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobYield,
    OfferBody,
    ResolveBody,
    ScheduleBody,
    YieldBody,
)
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.jobs.state import HELD, State
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    MeshCoordinator,
    MeshRoute,
    MeshRules,
    RouteBody,
    RulesBody,
)
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.inference.snapshot import SNAPSHOT_TYPE
from antiphon.core.manifest import author as author_manifest
from antiphon.core.proof.output import Output
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, subjects
from antiphon.core.record.op import subject_of
from simulator.actors.workload import KINDS
from simulator.hostile.hostile_member import Deed, HostileMember
from simulator.hostile.starvation import call_lonely

NO_FENCE: Final = "0" * 16


async def junk(m: HostileMember) -> None:
    """Bytes that are no op, on a lane, beside it, and outside all lanes."""
    found = m.some_job()
    if found is None:
        return
    key, lane, job = found
    root = subjects.root(m.mesh)
    places = (
        m.lane_subject(key),
        job_subjects.call(m.mesh, job.priority, *key),
        job_subjects.wait(m.mesh, *key),
        f"{root}.jobs.9.{key[0]}.{key[1]}",
        f"{root}.else.{key[0]}.{key[1]}",
        f"{root}.ctl.rules",
        f"{root}.seal",
    )
    size = m.chance.choice((0, 1, 40, 900))
    stored = m.referee.log.at(max(lane.tails))
    broken = stored.payload[: len(stored.payload) // 2] if stored else b""
    payload = m.chance.choice((m.chance.randbytes(size), broken, b"{}\n{}"))
    await m.put(m.chance.choice(places), payload)


async def wrong_subject(m: HostileMember) -> None:
    """Its own well-signed op, about one job, in another's lane."""
    one, other = m.some_job(), await m.next_job(State.PENDING, *HELD)
    if one is None or other is None or one[0] == other[0]:
        return
    subject, (kind, job) = m.lane_subject(other[0]), one[0]
    fence = other[2].fence or NO_FENCE
    body, what = m.chance.choice(
        (
            (CancelBody(kind=kind, job=job), JobCancel),
            (CompleteBody(kind=kind, job=job, fence=fence, status="failed"), JobComplete),
            (ClaimBody(kind=kind, job=job, lease_ms=10_000), JobClaim),
        )
    )
    await m.put(subject, m.op(what, body, prev=m.tail(subject)))


async def other_kind(m: HostileMember) -> None:
    """The result of a job of one kind, offered for the same job of another kind."""
    found = await m.next_job(*HELD)
    if found is None:
        return
    key, lane, job = found
    kind = next(kind for kind in KINDS if kind != key[0])
    body = CompleteBody(kind=kind, job=key[1], fence=job.fence, status="succeeded")
    payload = m.op(JobComplete, body, prev=lane.job_tail)
    await m.put(m.chance.choice((m.lane_subject(key), m.lane_subject((kind, key[1])))), payload)


async def not_the_claimer(m: HostileMember) -> None:
    """The current fence and the right predecessor, in the wrong hands."""
    found = await m.next_job(*HELD)
    if found is None:
        return
    key, lane, job = found
    kind, job_id = key
    body, what = m.chance.choice(
        (
            (
                CompleteBody(kind=kind, job=job_id, fence=job.fence, status="succeeded"),
                JobComplete,
            ),
            (
                YieldBody(kind=kind, job=job_id, fence=job.fence, reason="error"),
                JobYield,
            ),
            (ClaimBody(kind=kind, job=job_id, lease_ms=40_000), JobClaim),
        )
    )
    await m.put(m.lane_subject(key), m.op(what, body, prev=lane.job_tail))


async def stale_fence(m: HostileMember) -> None:
    """Its own old fence in its own new tenure, with the right predecessor."""
    found = await m.next_job(State.PENDING)
    if found is None:
        return
    key, lane, _ = found
    kind, job_id = key
    subject = m.lane_subject(key)
    claim = ClaimBody(kind=kind, job=job_id, lease_ms=5_000, begin=True)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail))
    first = m.referee.lanes[key].job
    if first is None or first.claimer != m.keyring.did:
        return
    back = YieldBody(kind=kind, job=job_id, fence=first.fence, reason="other")
    await m.put(subject, m.op(JobYield, back, prev=m.tail(subject)))
    await m.put(subject, m.op(JobClaim, claim, prev=m.tail(subject)))
    if m.chance.random() < 0.5:
        end = CompleteBody(kind=kind, job=job_id, fence=first.fence, status="succeeded")
        await m.put(subject, m.op(JobComplete, end, prev=m.tail(subject)))
    else:
        await m.put(subject, m.op(JobYield, back, prev=m.tail(subject)))


async def forged_author(m: HostileMember) -> None:
    """An end in the holder's name, with its fence, signed by the wrong key."""
    found = await m.next_job(*HELD)
    if found is None:
        return
    key, lane, job = found
    body = CompleteBody(kind=key[0], job=key[1], fence=job.fence, status="succeeded")
    payload = m.op(JobComplete, body, prev=lane.job_tail, author=job.claimer)
    await m.put(m.lane_subject(key), payload)


async def replay(m: HostileMember) -> None:
    """An old record of a lane once more: same bytes, new message id."""
    found = await m.next_job(State.PENDING, *HELD) or m.some_job()
    if found is None:
        return
    subject = m.lane_subject(found[0])
    stored = m.referee.log.at(m.chance.choice([seq for seq in found[1].tails if seq] or [1]))
    if stored is not None:
        await m.put(m.chance.choice((subject, stored.subject)), stored.payload)


async def future(m: HostileMember) -> None:
    """A claim from the future: beyond the drift, or just within it."""
    found = await m.next_job(State.PENDING)
    if found is None:
        return
    key, lane, _ = found
    ahead_ms = m.chance.choice((1_500, 1_999, 2_200, 60_000, 10**10))
    body = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000)
    payload = m.op(JobClaim, body, prev=lane.job_tail, wall_ms=m.now_ms() + ahead_ms)
    await m.put(m.lane_subject(key), payload)


async def early_expire(m: HostileMember) -> None:
    """An expiry before its time, dated ahead as far as the drift lets it."""
    found = await m.next_job(State.PENDING, *HELD)
    if found is None:
        return
    key, lane, job = found
    body = ExpireBody(kind=key[0], job=key[1], fence=job.fence or None)
    ahead_ms = m.chance.choice((0, 1_900))
    payload = m.op(JobExpire, body, prev=lane.job_tail, wall_ms=m.now_ms() + ahead_ms)
    await m.put(m.lane_subject(key), payload)


async def early_offer(m: HostileMember) -> None:
    """An offer of a delayed job before its time, dated ahead as far as the drift lets it."""
    found = await m.next_job(State.WAITING, where=lambda job: m.now_ms() < job.not_before_ms)
    if found is None:
        return
    key, _, job = found
    body = OfferBody(kind=key[0], job=key[1], priority=job.priority)
    subject = job_subjects.call(m.mesh, job.priority, *key)
    wall_ms = m.now_ms() + m.chance.choice((0, 1_900))
    await m.put(subject, m.op(JobOffer, body, prev=m.tail(subject), wall_ms=wall_ms))


async def false_resolve(m: HostileMember) -> None:
    """A resolve of a job with replicas, by too few of them, or by jobs that are none of them."""
    found = await m.next_job(State.WAITING, where=lambda job: job.replicas > 0)
    if found is None:
        return
    key, lane, job = found
    ended = [one.job for (kind, _), one in m.referee.lanes.items() if kind == key[0] and one.job]
    ended = [one for one in ended if one.state is State.SUCCEEDED and one.claimer]
    own = [one for one in ended if one.replica_of == job.id]
    chosen = (own or ended)[-m.chance.choice((1, job.quorum)) :]
    if not chosen:
        return
    stored = m.referee.log.at(chosen[0].ended_seq)
    done = (
        None if stored is None else codec.decode(stored.payload.split(b"\n")[0], PROTOCOL.decoder)
    )
    outputs = done.body.outputs if isinstance(done, JobComplete) else ()
    named = tuple((one.id, one.ended_seq) for one in chosen)
    if m.chance.random() < 0.5:
        named = named[:1] * job.quorum
    body = ResolveBody(kind=key[0], job=key[1], children=named, outputs=outputs)
    await m.put(m.lane_subject(key), m.op(JobResolve, body, prev=lane.job_tail, is_plain=True))


async def double_schedule(m: HostileMember) -> None:
    """The same job again, with another priority and with other terms."""
    found = m.some_job()
    if found is None:
        return
    key, _, job = found
    stored = m.referee.log.at(job.scheduled_seq)
    opened = (
        None if stored is None else codec.decode(stored.payload.split(b"\n")[0], PROTOCOL.decoder)
    )
    if not isinstance(opened, JobSchedule):
        return
    priority = m.chance.choice(PRIORITIES)
    body = ScheduleBody(
        kind=key[0], manifest=opened.body.manifest, priority=priority, lease_ms=40_000
    )
    subject = job_subjects.call(m.mesh, priority, *key)
    await m.put(subject, m.op(JobSchedule, body, prev=m.tail(subject)))


async def usurp(m: HostileMember) -> None:
    """Control ops that only the owner may write, and a second genesis."""
    root, did = m.mesh, m.keyring.did
    rules = RulesBody(rules=Rules(protocol=m.chance.choice((1, 2)), authority="open"))
    what: Any
    what, body, name = m.chance.choice(
        (
            (MeshRules, rules, "rules"),
            (MeshRoute, RouteBody(kind=KINDS[0], target=did), f"route.{KINDS[0]}"),
            (MeshCoordinator, CoordinatorBody(node=did), "coordinator"),
        )
    )
    subject = subjects.control(root, name)
    await m.put(subject, m.op(what, body, prev=m.tail(subject)))


async def plant(m: HostileMember) -> None:
    """A job of its own that fails, with a result that does not match its digest."""
    arguments = '{"args":[-1,5,0],"kwargs":{}}'
    nonce = {"kind": "nonce", "nonce": m.chance.randbytes(16).hex()}
    content = author_manifest(
        {"command": ["@doomed"], "args": [arguments], "timeout": 9, "inputs": [nonce]}
    )
    body = ScheduleBody(kind="doomed", manifest=content)
    payload = m.op(JobSchedule, body, prev=0)
    subject = subject_of(codec.decode(payload.split(b"\n")[0], PROTOCOL.decoder))
    await m.put(subject, payload)
    key = ("doomed", subject[-64:])
    lane = m.lane_subject(key)
    claim = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000, begin=True)
    await m.put(lane, m.op(JobClaim, claim, prev=m.tail(lane)))
    job = m.referee.lanes[key].job
    if job is not None and job.claimer == m.keyring.did:
        lie = Output(name="result", text="a lie")
        end = CompleteBody(
            kind=key[0], job=key[1], fence=job.fence, status="succeeded", outputs=(lie,)
        )
        await m.put(lane, m.op(JobComplete, end, prev=m.tail(lane)))


async def false_witness(m: HostileMember) -> None:
    """The end of a job that it holds by right, with a proof that may be of something else."""
    found = m.some_job(State.PENDING)
    key, lane = found[:2] if found else await call_lonely(m)
    claim = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000, begin=True)
    subject = m.lane_subject(key)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail, is_plain=True))
    mine = m.referee.lanes[key].job
    if mine is not None and mine.claimer == m.keyring.did:
        end = CompleteBody(kind=key[0], job=key[1], fence=mine.fence, status="succeeded")
        await m.put(subject, m.op(JobComplete, end, prev=m.tail(subject), is_plain=True))


async def false_account(m: HostileMember) -> None:
    """The end of a job that it holds by right, with a false account of its model calls."""
    found = m.some_job(State.PENDING)
    key, lane = found[:2] if found else await call_lonely(m)
    kind, job = key
    subject = m.lane_subject(key)
    claim = ClaimBody(kind=kind, job=job, lease_ms=5_000, begin=True)
    await m.put(subject, m.op(JobClaim, claim, prev=lane.job_tail, is_plain=True))
    mine = m.referee.lanes[key].job
    if mine is None or mine.claimer != m.keyring.did:
        return
    made_up = Output(name="snapshot-0", type=SNAPSHOT_TYPE, text="{}")
    calls, outputs = m.chance.choice(
        ((None, ()), (1, ()), (0, (made_up,)), (1, (made_up,)), (1, (made_up, made_up)))
    )
    end = CompleteBody(
        kind=kind, job=job, fence=mine.fence, status="succeeded", calls=calls, outputs=outputs
    )
    await m.put(subject, m.op(JobComplete, end, prev=m.tail(subject), is_plain=True))


async def false_seal(m: HostileMember) -> None:
    """A seal over what is not there, or out of turn, or that is simply not its own to write."""
    last = m.referee.log.last_seq
    upto = max(1, last - m.chance.choice((0, 0, 0, 5, -3)))
    root = m.chance.randbytes(32).hex()
    body = SealBody(upto=upto, size=max(1, upto - m.chance.choice((0, 0, 1))), root=root)
    subject = subjects.seal(m.mesh)
    await m.put(subject, m.op(MeshSeal, body, prev=m.tail(subject)))


DEEDS: Final[dict[str, Deed]] = {
    deed.__name__: deed
    for deed in (
        junk,
        wrong_subject,
        other_kind,
        not_the_claimer,
        stale_fence,
        forged_author,
        replay,
        future,
        early_expire,
        early_offer,
        false_resolve,
        double_schedule,
        usurp,
        plant,
        false_witness,
        false_seal,
    )
}
AUDITED_DEEDS: Final[dict[str, Deed]] = {false_account.__name__: false_account}
"""Where model calls are audited."""
