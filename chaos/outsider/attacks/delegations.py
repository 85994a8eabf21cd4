"""What the outsider tries with delegations: widen, forge and revoke them, and false evidence."""

from __future__ import annotations

import os
from typing import Final

from antiphon.assembly.logins import log_in
from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobClaim
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.record import subjects
from antiphon.core.record.ids import digest, key_of
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import seal_envelope
from antiphon.errors import Rejected
from antiphon.runtime.identity.key_files import SeedKeyring
from chaos.outsider.attacks.forgeries import (
    Forger,
    a_claim,
    called,
    grants_of,
    leaked_lane,
    now_ms,
    tail_of,
)
from chaos.outsider.attacks.headers import own_subject, stored
from chaos.outsider.attempt import Attempt, Outcome, unknown_job
from chaos.outsider.target import BUILD, RENDER, Breach, TargetMesh


async def _widen(target: TargetMesh) -> Outcome:
    """A child of its own grant that allows everything; then use it, and ask the gate."""
    forger = Forger(target)
    child, verdict = await forger.delegate(forger.key.did)
    if verdict is not Verdict.OK:
        return Outcome("rules", verdict.value)
    chain = (*forger.chain("/job/claim"), child)
    job = await called(target)
    body = CancelBody(kind=RENDER, job=job, reason="x")
    verdict = await forger.put(forger.sign(JobCancel, body, auth=chain))
    if verdict.is_accepted:
        raise Breach("a child allowed more than its parent")
    try:
        await log_in(target.contractor, target.contractor.access(), [BUILD])
    except Rejected as refused:
        return Outcome("rules", f"{verdict.value}; and the gate: {refused.message}")
    raise Breach("the gate let it serve the victim's kind")


async def _forge_delegation(target: TargetMesh) -> Outcome:
    """A delegation in the owner's name with a signature of its own."""
    forger = Forger(target)
    payload = forger.delegation(forger.key.did, iss=forger.owner)
    own_signature = forger.key.delegate(forger.delegation(forger.key.did)).signature
    made = seal_envelope(payload, own_signature)
    record = forger.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
    answer = await forger.post(record)
    if answer.get("reason") != Verdict.SIGNATURE.value:
        raise Breach(f"the gate said {answer}")
    return Outcome("gate", f"{Verdict.SIGNATURE.value}; and the server lets it write none")


async def _revoke_the_victim(target: TargetMesh) -> Outcome:
    """First with its own key, then as one who delegated to the owner and so is above it."""
    forger = Forger(target)
    victim = target.victim.signer("machine").did
    said = []
    for tail in range(2):
        if tail:
            await forger.delegate(forger.owner)
        for cid in grants_of(target, victim).values():
            prev = await tail_of(target, subjects.control(target.mesh, f"revoke.{cid}"))
            record = forger.sign(UcanRevoke, RevokeBody(cid=cid), prev=prev)
            answer = await forger.post(record)
            if "refused" not in answer:
                raise Breach(f"the gate said {answer}")
            said.append(answer["reason"])
    await target.restart_victim()
    await target.check_work()
    return Outcome("gate", f"{', '.join(dict.fromkeys(said))}; and the server lets it write none")


async def _false_evidence(target: TargetMesh) -> Outcome:
    """Two ops of its own, and one op of the victim's shown twice."""
    forger = Forger(target)
    claim = a_claim(unknown_job())
    hlc = (now_ms(), 9)
    pair = [forger.sign(JobClaim, claim, hlc=hlc, prev=n).payload.decode() for n in (1, 2)]
    shown = (await leaked_lane(target))[-1].decode()
    accused = target.working.worker.session.author.did if target.working.worker else ""
    for first, second in ((pair[0], pair[1]), (shown, shown)):
        body = EvidenceBody(node=accused, first=first, second=second)
        subject = subjects.control(target.mesh, f"evidence.{key_of(accused)}")
        prev = await tail_of(target, subject)
        answer = await forger.post(forger.sign(MeshEvidence, body, prev=prev))
        if answer.get("reason") != Verdict.PROOF.value:
            raise Breach(f"the gate said {answer}")
    return Outcome("gate", f"{Verdict.PROOF.value}; and the server lets it write none")


async def _hidden_dependency(target: TargetMesh) -> Outcome:
    """A control op that depends on a record which only some members may read."""
    forger = Forger(target)
    hidden = await stored(target, own_subject(target), b"", b"hidden")
    made = forger.key.delegate(forger.delegation(SeedKeyring(os.urandom(32)).did))
    body = DelegateBody(token=token_of(made.raw))
    record = forger.sign(UcanDelegate, body, deps=((hidden, digest(b"hidden")),))
    answer = await forger.post(record)
    if "refused" in answer:
        return Outcome("gate", f"refused as {answer['reason']}, whatever they can read")
    seq = int(answer["seq"])
    verdict = await target.verdict(seq)
    for who, session in (
        ("the victim", target.working.mesh.connection.session),
        ("the observer", target.replicating.mesh.connection.session),
    ):
        await session.sync_control()
        said = session.control_verdicts.get(seq)
        if said is not verdict:
            raise Breach(f"{who} says {said} of a control op, the full node {verdict}")
    return Outcome("harmless", f"everybody says {verdict.value}")


DELEGATIONS: Final = [
    Attempt("widen its own grant", _widen),
    Attempt("forge a delegation in the owner's name", _forge_delegation),
    Attempt("revoke the victim's grant", _revoke_the_victim),
    Attempt("bring false evidence against the victim", _false_evidence),
    Attempt("control ops for reasons that others cannot read", _hidden_dependency),
]
