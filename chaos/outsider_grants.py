"""What the outsider does with the book of delegations: widen, forge, take back, accuse."""

from __future__ import annotations

import os
from typing import Final

from antiphon.assembly.logins import log_in
from antiphon.core import subjects
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import CancelBody, JobCancel, JobClaim
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.grants import token_of
from antiphon.core.ids import digest, key_of
from antiphon.core.reasons import Reason
from antiphon.core.ucan import seal_envelope
from antiphon.errors import Rejected
from antiphon.runtime.keys import SeedKeyring
from chaos.outsider_attempt import Attempt, Held, invented
from chaos.outsider_forgeries import (
    Forger,
    a_claim,
    called,
    grants_of,
    leaked_lane,
    now_ms,
    tail_of,
)
from chaos.outsider_headers import own, stored
from chaos.outsider_scene import BUILD, RENDER, Breach, Scene


async def _widen(scene: Scene) -> Held:
    """A child of its own grant that allows everything; then use it, and ask the gate."""
    forger = Forger(scene)
    child, verdict = await forger.delegate(forger.key.did)
    if verdict is not Reason.OK:
        return Held("rules", verdict.value)
    chain = (*forger.chain("/job/claim"), child)
    job = await called(scene)
    body = CancelBody(kind=RENDER, job=job, reason="x")
    verdict = await forger.put(forger.sign(JobCancel, body, auth=chain))
    if verdict.is_accepted:
        raise Breach("a child allowed more than its parent")
    try:
        await log_in(scene.contractor, scene.contractor.access(), [BUILD])
    except Rejected as refused:
        return Held("rules", f"{verdict.value}; and the gate: {refused.message}")
    raise Breach("the gate let it serve the victim's kind")


async def _forge_delegation(scene: Scene) -> Held:
    """A delegation in the owner's name with a signature of its own."""
    forger = Forger(scene)
    payload = forger.delegation(forger.key.did, iss=forger.owner)
    own_signature = forger.key.delegate(forger.delegation(forger.key.did)).signature
    made = seal_envelope(payload, own_signature)
    record = forger.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)))
    answer = await forger.post(record)
    if answer.get("reason") != Reason.SIGNATURE.value:
        raise Breach(f"the gate said {answer}")
    return Held("gate", f"{Reason.SIGNATURE.value}; and the server lets it write none")


async def _revoke_the_victim(scene: Scene) -> Held:
    """First as it is, then from above: whoever delegates to the owner is above it in the book."""
    forger = Forger(scene)
    victim = scene.victim.signer("machine").did
    said = []
    for tail in range(2):
        if tail:
            await forger.delegate(forger.owner)
        for cid in grants_of(scene, victim).values():
            prev = await tail_of(scene, subjects.control(scene.mesh, f"revoke.{cid}"))
            record = forger.sign(UcanRevoke, RevokeBody(cid=cid), prev=prev)
            answer = await forger.post(record)
            if "refused" not in answer:
                raise Breach(f"the gate said {answer}")
            said.append(answer["reason"])
    await scene.restart_victim()
    await scene.pulse()
    return Held("gate", f"{', '.join(dict.fromkeys(said))}; and the server lets it write none")


async def _false_evidence(scene: Scene) -> Held:
    """Two ops of its own, and one op of the victim's shown twice."""
    forger = Forger(scene)
    claim = a_claim(invented())
    hlc = (now_ms(), 9)
    pair = [forger.sign(JobClaim, claim, hlc=hlc, prev=n).payload.decode() for n in (1, 2)]
    shown = (await leaked_lane(scene))[-1].decode()
    accused = scene.working.worker.peer.author.did if scene.working.worker else ""
    for first, second in ((pair[0], pair[1]), (shown, shown)):
        body = EvidenceBody(node=accused, first=first, second=second)
        subject = subjects.control(scene.mesh, f"evidence.{key_of(accused)}")
        prev = await tail_of(scene, subject)
        answer = await forger.post(forger.sign(MeshEvidence, body, prev=prev))
        if answer.get("reason") != Reason.PROOF.value:
            raise Breach(f"the gate said {answer}")
    return Held("gate", f"{Reason.PROOF.value}; and the server lets it write none")


async def _hidden_reasons(scene: Scene) -> Held:
    """A control op that depends on a record which only some members may read."""
    forger = Forger(scene)
    hidden = await stored(scene, own(scene), b"", b"hidden")
    made = forger.key.delegate(forger.delegation(SeedKeyring(os.urandom(32)).did))
    body = DelegateBody(token=token_of(made.raw))
    record = forger.sign(UcanDelegate, body, deps=((hidden, digest(b"hidden")),))
    answer = await forger.post(record)
    if "refused" in answer:
        return Held("gate", f"refused as {answer['reason']}, whatever they can read")
    seq = int(answer["seq"])
    verdict = await scene.verdict(seq)
    for who, peer in (
        ("the victim", scene.working.mesh.peer),
        ("the observer", scene.replicating.mesh.peer),
    ):
        await peer.sync_control()
        said = peer.control_verdicts.get(seq)
        if said is not verdict:
            raise Breach(f"{who} says {said} of a control op, the full node {verdict}")
    return Held("harmless", f"everybody says {verdict.value}")


GRANTS: Final = [
    Attempt("widen its own grant", _widen),
    Attempt("forge a delegation in the owner's name", _forge_delegation),
    Attempt("revoke the victim's grant", _revoke_the_victim),
    Attempt("bring false evidence against the victim", _false_evidence),
    Attempt("control ops for reasons that others cannot read", _hidden_reasons),
]
