"""What delegations and revocations do (spec §6).

Its issuer, its audience and the owner may record a delegation. Its issuer, issuers above it and
the owner may revoke it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.authority.control import Change
from antiphon.core.authority.delegations import MESH_META
from antiphon.core.families.grants import ops
from antiphon.core.family import At, Moved
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.op import Op
    from antiphon.core.ucan import Delegation


def entitled(control: Control, _state: None, op: Op, at: At) -> Verdict | bool:
    """Whether the author may record or revoke this delegation."""
    author, owner = op.author, control.owner
    match op:
        case ops.UcanDelegate(body=body):
            claims = body.delegation.payload
            return author in {claims.iss, claims.aud, owner} or Verdict.NO_CHAIN
        case ops.UcanRevoke(body=body):
            grants = control.grants
            may = grants.find(body.cid, before=at.seq) is not None and (
                author == owner or grants.is_above(author, body.cid, before=at.seq)
            )
            return may or Verdict.NO_CHAIN
        case _:
            return Verdict.NO_CHAIN


def last(_control: Control, _state: None, _op: Op) -> None:
    """None: these ops do not follow one another."""


def step(_state: None, op: Op, at: At) -> Moved | Verdict:
    """What is granted or revoked from here on."""
    match op:
        case ops.UcanDelegate(body=body):
            return _granted(body.delegation, at)
        case ops.UcanRevoke(body=body):
            return Moved(Verdict.OK, change=Change(revoked=(body.cid, op.author)))
        case _:
            return Verdict.TYPE


def _granted(delegation: Delegation, at: At) -> Moved | Verdict:
    control = at.control
    if control.grants.find(delegation.cid, before=at.seq) is not None:
        return Verdict.ALREADY
    meta = delegation.payload.meta
    if isinstance(meta, dict) and meta.get(MESH_META, control.mesh) != control.mesh:
        return Verdict.MESH
    if not control.grants.is_signed(delegation):
        return Verdict.SIGNATURE
    return Moved(Verdict.OK, change=Change(granted=delegation))
