"""Verdicts on control ops (spec §5, §6, §7.4): rules, routes, offices, delegations, evidence.

The order of the checks is that of every op: time, predecessor, authority, deps, then content.
"""

from __future__ import annotations

from typing import Final

from antiphon.core import ops
from antiphon.core.control import Control, time_fault
from antiphon.core.deps import are_present
from antiphon.core.grants import open_token
from antiphon.core.reasons import Reason
from antiphon.core.records import Entry, open_anywhere
from antiphon.core.rules import Rules, contradiction
from antiphon.core.ucan import Delegation

MESH_META: Final = "mesh"
"""A delegation whose metadata names a mesh is good on that mesh only: one key may own several."""


def judge(control: Control, entry: Entry, op: ops.ControlOp, before: int) -> Reason:
    """The verdict on a control op; `before` is the last sequence on its subject."""
    fault = time_fault(control, entry, op.hlc)
    if fault is not None:
        return fault
    if op.prev != before:
        return Reason.PREV
    fault = _authority_fault(control, entry, op)
    if fault is not None:
        return fault
    if op.deps and not are_present(entry, control.op_ids):
        return Reason.MISSING_DEP
    match op:
        case ops.UcanDelegate(body=body):
            return _judge_delegation(control, entry, open_token(body.token))
        case ops.UcanRevoke():
            return Reason.OK
        case ops.MeshEvidence(body=body):
            return _judge_evidence(control, entry, body)
    if op.hlc <= control.owner_hlc:
        return Reason.EQUIVOCATION if op.hlc == control.owner_hlc else Reason.STALE
    return _judge_rules(control, op.body.rules) if isinstance(op, ops.MeshRules) else Reason.OK


def _authority_fault(control: Control, entry: Entry, op: ops.ControlOp) -> Reason | None:
    """Why the author may not author this op here, or None.

    Owner ops are the owner's. Delegations are brought by those whom they concern and revoked by
    those above them. Anybody may show evidence.
    """
    author, owner = op.author, control.owner
    if control.is_quarantined(author):
        return Reason.QUARANTINED
    match op:
        case ops.MeshEvidence():
            return None
        case ops.UcanDelegate(body=body):
            claims = open_token(body.token).payload
            return None if author in {claims.iss, claims.aud, owner} else Reason.NO_CHAIN
        case ops.UcanRevoke(body=body):
            grants, seq = control.grants, entry.seq
            may = grants.find(body.cid, before=seq) is not None and (
                author == owner or grants.is_above(author, body.cid, before=seq)
            )
            return None if may else Reason.NO_CHAIN
        case ops.MeshRecover():
            return None if author == control.recovery else Reason.NOT_OWNER
        case _:
            return None if author == owner else Reason.NOT_OWNER


def _judge_rules(control: Control, rules: Rules) -> Reason:
    if rules.protocol < control.rules.protocol:
        return Reason.PROTOCOL
    if rules.protocol > control.rules.protocol:
        return Reason.OK  # an announcement: the protocol that it names judges what comes with it
    return Reason.RULES if contradiction(rules) is not None else Reason.OK


def _judge_evidence(control: Control, entry: Entry, body: ops.EvidenceBody) -> Reason:
    """Two different ops, validly signed by one author with one timestamp, for this mesh.

    Against a key that holds nothing it says what already holds: nothing of it counts.
    """
    if control.is_quarantined(body.node) or not _holds_something(control, body.node, entry.seq):
        return Reason.ALREADY
    one, two = (open_anywhere(control.mesh, text.encode()) for text in (body.first, body.second))
    if one.op is None or two.op is None or one.op_id == two.op_id:
        return Reason.PROOF
    is_by_one = one.op.author == two.op.author == body.node
    if not is_by_one or one.op.hlc != two.op.hlc or body.node == control.owner:
        return Reason.PROOF
    if one.op.mesh != control.mesh or two.op.mesh != control.mesh:
        return Reason.PROOF  # geneses of other meshes name none
    if one.op.hlc[0] > entry.commit_ms + control.rules.max_drift_ms:
        return Reason.PROOF  # or it would outdate whatever is shown after a readmission
    known = control.standing_of(body.node)
    is_old = known is not None and one.op.hlc <= known.shown_hlc
    return Reason.ALREADY if is_old else Reason.OK


def _holds_something(control: Control, did: str, seq: int) -> bool:
    """Whether a key's ops could count here: its quarantine would change something."""
    return (
        control.rules.authority == "open"
        or did in {control.owner, control.coordinator}
        or control.grants.is_held_by(did, root=control.owner, before=seq)
    )


def _judge_delegation(control: Control, entry: Entry, delegation: Delegation) -> Reason:
    if control.grants.find(delegation.cid, before=entry.seq) is not None:
        return Reason.ALREADY
    meta = delegation.payload.meta
    if isinstance(meta, dict) and meta.get(MESH_META, control.mesh) != control.mesh:
        return Reason.MESH
    return Reason.OK if control.grants.is_signed(delegation) else Reason.SIGNATURE
