"""The hostile member's attacks on authority, on a mesh where every op needs a chain.

It holds some delegations, as any member does, and sees everybody else's. What it lacks is other
people's keys. Everything here must bounce off the rules, each for its own reason.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import UNSET, UnsetType

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim, JobSchedule, ScheduleBody
from antiphon.core.families.jobs.state import HELD, State
from antiphon.core.families.mesh.ops import (
    EvidenceBody,
    MeshEvidence,
    MeshReadmit,
    MeshRecover,
    ReadmitBody,
    RecoverBody,
)
from antiphon.core.manifest import author as author_manifest
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec, subjects
from antiphon.core.record.ids import key_of
from antiphon.core.record.op import subject_of
from antiphon.core.ucan import Delegation, Payload, Policy, seal_envelope
from simulator.actors.workload import KINDS
from simulator.checks.authority_model import AuthorityModel
from simulator.hostile.hostile_member import Deed, HostileMember, two_faces

PATIENCE_S: Final = 60
"""How long a deed waits for the second that it needs."""
NOWHERE: Final = "b" + "a" * 58
FAR: Final = 2**63
NONCE_BYTES: Final = 12


Dated = tuple[tuple[str, ...], int]
"""A chain, and a time for an op under it."""


def authority_model(m: HostileMember) -> AuthorityModel:
    """Everybody's delegations."""
    return m.referee.ledger.authority_model


def own_chains(m: HostileMember, did: str = "") -> list[tuple[str, ...]]:
    """Its own ways from the owner, good or not; or those of somebody else."""
    found = chains_to(
        m.referee.history.grants, authority_model(m).owner, did or m.keyring.did, before=FAR
    )
    return [tuple(link.cid for link in chain.links) for chain in found]


def bounds_of(m: HostileMember, chain: tuple[str, ...]) -> tuple[int | None, int | None]:
    """The first and the last second of a chain."""
    links = [authority_model(m).grants[cid].claims for cid in chain]
    begins = [link.begins_s for link in links if link.begins_s is not None]
    ends = [link.ends_s for link in links if link.ends_s is not None]
    return max(begins, default=None), min(ends, default=None)


def standing_chains(m: HostileMember) -> list[tuple[str, ...]]:
    """Those of its own ways that lie within their time."""
    now_s = m.now_ms() // 1000
    return [
        chain
        for chain in own_chains(m)
        if all(
            bound is None or sign * bound <= sign * now_s
            for bound, sign in zip(bounds_of(m, chain), (1, -1), strict=True)
        )
    ]


async def call(m: HostileMember, auth: tuple[str, ...] | None = None, *, wall_ms: int = 0) -> None:
    """Call a job of its own, as of some time and under some chain."""
    kind = m.chance.choice(KINDS)
    nonce = {"kind": "nonce", "nonce": m.chance.randbytes(16).hex()}
    content = author_manifest(
        {
            "command": [f"@{kind}"],
            "args": ['{"args":[-1,5,0],"kwargs":{}}'],
            "timeout": 9,
            "inputs": [nonce],
        }
    )
    body = ScheduleBody(kind=kind, manifest=content)
    payload = m.op(JobSchedule, body, prev=0, wall_ms=wall_ms, auth=auth)
    await m.put(subject_of(codec.decode(payload.split(b"\n")[0], PROTOCOL.decoder)), payload)


async def claim(m: HostileMember, auth: tuple[str, ...] | None = None, *, wall_ms: int = 0) -> None:
    """Claim somebody's job, as of some time and under some chain."""
    found = await m.next_job(State.PENDING)
    if found is not None:
        key, lane, _ = found
        body = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000)
        payload = m.op(JobClaim, body, prev=lane.job_tail, wall_ms=wall_ms, auth=auth)
        await m.put(m.lane_subject(key), payload)


async def act(m: HostileMember, auth: tuple[str, ...] | None = None, *, wall_ms: int = 0) -> None:
    """One of the two."""
    await m.chance.choice((call, claim))(m, auth, wall_ms=wall_ms)


# --- times -----------------------------------------------------------------------------------


async def back_date(m: HostileMember) -> None:
    """Under chains that have expired, as of the time when they had not; or of before they began."""
    now_s, over, begun = m.now_ms() // 1000, list[Dated](), list[Dated]()
    for chain in own_chains(m):
        begins_s, ends_s = bounds_of(m, chain)
        if ends_s is not None and ends_s < now_s:
            over.append((chain, ends_s * 1000 + m.chance.choice((-5_000, 0, 999))))
        elif begins_s is not None and begins_s <= now_s:
            begun.append((chain, begins_s * 1000 - m.chance.choice((1, 5_000))))
    for chances in (over, begun):
        if chances:
            chain, wall_ms = m.chance.choice(chances[:6])
            await act(m, chain, wall_ms=wall_ms)


async def second_by_second(m: HostileMember) -> None:
    """Just after a chain's last second or before its first: by the engine's clock, or its own."""
    now_s = m.now_ms() // 1000
    chances: list[tuple[tuple[str, ...], int, int]] = []
    for chain in own_chains(m):
        begins_s, ends_s = bounds_of(m, chain)
        if ends_s is not None:
            # Committed a second late; and committed in time, but dated a second late.
            chances += [(chain, ends_s + 1, 0), (chain, ends_s, 1)]
        if begins_s is not None:
            chances += [(chain, begins_s - 1, 0), (chain, begins_s - 1, 1), (chain, begins_s, -1)]
    soon = [one for one in chances if now_s < one[1] < now_s + PATIENCE_S]
    if not soon:
        return
    chain, commit_s, off_s = m.chance.choice(soon)
    wait_ms = commit_s * 1000 + m.chance.randint(100, 800) - m.now_ms()
    await asyncio.sleep(max(wait_ms, 0) / 1000)
    await call(m, chain, wall_ms=m.now_ms() + off_s * 1000)


# --- chains ----------------------------------------------------------------------------------


async def borrow(m: HostileMember) -> None:
    """Under somebody else's chain."""
    holders = {grant.claims.audience for grant in authority_model(m).grants.values()}
    others = sorted(holders - {m.keyring.did, authority_model(m).owner})
    if others:
        chains = own_chains(m, m.chance.choice(others))
        if chains:
            await act(m, m.chance.choice(chains))


async def bare(m: HostileMember) -> None:
    """Under nothing, under what is on no log, upside down, with a link left out, or too much."""
    chains = own_chains(m)
    chain = m.chance.choice(chains) if chains else (NOWHERE,)
    await act(
        m, m.chance.choice(((), (NOWHERE,), chain[::-1], chain[1:], chain[:-1], (*chain, *chain)))
    )


async def trespass(m: HostileMember) -> None:
    """Under its own chain, whatever it covers, on whatever comes."""
    chains = standing_chains(m)
    if chains:
        await act(m, m.chance.choice(chains))


async def widen(m: HostileMember) -> None:
    """Under a child of its own chain that is wider than the chain, or meant for another mesh."""
    chains = standing_chains(m)
    if not chains:
        return
    chain, did = m.chance.choice(chains), m.keyring.did
    command, mesh = m.chance.choice((("/", ""), ("/job", ""), ("/job", "anothermeshaaaaa")))
    child = m.keyring.delegate(_payload(m, did, did, command=command, mesh=mesh))
    await _bring(m, child)
    await act(m, (*chain, child.cid))


async def self_made(m: HostileMember) -> None:
    """Under a chain without a root: about itself, in its own name, or a powerline alone."""
    did, owner = m.keyring.did, authority_model(m).owner
    subject: Any = m.chance.choice((did, owner, None))
    made = m.keyring.delegate(_payload(m, did, did, subject=subject))
    await _bring(m, made)
    await act(m, m.chance.choice(((made.cid,), (made.cid, *(own_chains(m) or [()])[0]))))


async def forge(m: HostileMember) -> None:
    """A delegation in the name of the owner, or of whoever is above, with its own signature."""
    issuers = sorted({grant.claims.issuer for grant in authority_model(m).grants.values()})
    issuer = m.chance.choice((authority_model(m).owner, *issuers))
    payload = _payload(m, issuer, m.keyring.did)
    borrowed = m.keyring.delegate(_payload(m, m.keyring.did, m.keyring.did)).signature
    made = seal_envelope(payload, m.chance.choice((borrowed, bytes(64))))
    await _bring(m, made)
    await act(m, (made.cid,))


# --- taking away -----------------------------------------------------------------------------


async def revoke_others(m: HostileMember) -> None:
    """Take back what it did not give, and claim what is held under it.

    Sometimes it first puts itself above the giver: whoever delegates anything to an issuer is
    above it in the book, and so may write the revocation; but it is in nobody's chain.
    """
    found = await m.next_job(*HELD)
    if found is None or not found[2].auth:
        return
    key, _, job = found
    link = authority_model(m).grants[m.chance.choice(job.auth)].claims
    if m.chance.random() < 0.7:
        await _bring(m, m.keyring.delegate(_payload(m, m.keyring.did, link.issuer)))
    subject = subjects.control(m.mesh, f"revoke.{link.cid}")
    body = RevokeBody(cid=link.cid)
    await m.put(subject, m.op(UcanRevoke, body, prev=m.tail(subject)))
    lane = m.lane_subject(key)
    take = ClaimBody(kind=key[0], job=key[1], lease_ms=5_000)
    await m.put(lane, m.op(JobClaim, take, prev=m.tail(lane)))


async def false_evidence(m: HostileMember) -> None:
    """What proves nothing: another's ops, one op twice, or what was shown before."""
    found = m.some_job()
    if found is None:
        return
    first, second = two_faces(m.mesh, m.keyring, (m.now_ms(), 0), m.chance)
    node = m.chance.choice((found[2].scheduler, authority_model(m).owner, m.keyring.did))
    if node == m.keyring.did:
        second = first
    body = EvidenceBody(node=node, first=first, second=second)
    shown = authority_model(m).evidence
    if shown and m.chance.random() < 0.5:
        body = EvidenceBody(**m.chance.choice(shown))
        node = body.node
    subject = subjects.control(m.mesh, f"evidence.{key_of(node)}")
    await m.put(subject, m.op(MeshEvidence, body, prev=m.tail(subject)))


async def succeed(m: HostileMember) -> None:
    """Name itself owner, or let itself in again, with the wrong key."""
    did = m.keyring.did
    what: Any
    what, body, name = m.chance.choice(
        (
            (MeshRecover, RecoverBody(owner=did, recovery=did), "recover"),
            (MeshReadmit, ReadmitBody(node=did), f"readmit.{key_of(did)}"),
        )
    )
    subject = subjects.control(m.mesh, name)
    await m.put(subject, m.op(what, body, prev=m.tail(subject)))


def _payload(
    m: HostileMember,
    issuer: str,
    audience: str,
    *,
    command: str = "/job",
    subject: str | UnsetType | None = UNSET,
    mesh: str = "",
) -> Payload:
    return Payload(
        iss=issuer,
        aud=audience,
        sub=authority_model(m).owner if subject is UNSET else subject,
        cmd=command,
        pol=Policy([]),
        nonce=m.chance.randbytes(NONCE_BYTES),
        exp=None,
        meta={"mesh": mesh} if mesh else UNSET,
    )


async def _bring(m: HostileMember, delegation: Delegation) -> None:
    subject = subjects.control(m.mesh, f"ucan.{delegation.cid}")
    body = DelegateBody(token=token_of(delegation.raw))
    await m.put(subject, m.op(UcanDelegate, body, prev=m.tail(subject)))


FORGERIES: Final[dict[str, Deed]] = {
    deed.__name__: deed
    for deed in (
        back_date,
        second_by_second,
        borrow,
        bare,
        trespass,
        widen,
        self_made,
        forge,
        revoke_others,
        false_evidence,
        succeed,
    )
}
