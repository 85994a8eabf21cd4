"""Delegations and revocations, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority import grant_terms
from antiphon.core.families.grants import ops
from antiphon.core.record.ids import short_node

if TYPE_CHECKING:
    from antiphon.core.record.op import Op
    from antiphon.core.ucan import Delegation

_SHORT_CID: Final = 8


def sentence(op: Op) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    match op:
        case ops.UcanDelegate(body=body):
            return _grant(body.delegation)
        case ops.UcanRevoke(body=body):
            return f"revoked the delegation {body.cid[-_SHORT_CID:]}"
        case _:
            return f"wrote {op.type_name()}"


def _grant(delegation: Delegation) -> str:
    claims = delegation.payload
    alias = grant_terms.alias_of(delegation)
    whom = short_node(claims.aud) + (f" ({alias})" if alias else "")
    if claims.subject is None:
        return f"recorded a delegation to {whom}: everything that {short_node(claims.iss)} holds"
    right = grant_terms.command_in_words(claims.cmd)
    return f"recorded a delegation to {whom}: {right} {grant_terms.kinds_in_words(delegation)}"
