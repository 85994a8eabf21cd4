"""Delegations and revocations as ops (spec §6).

Members send both to the gate, for two reasons. Every node reads all control records, so no member
may flood them. And the subject of a revocation is known in advance: a member that could publish
there could keep everyone else from revoking.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.authority import grant_terms
from antiphon.core.authority.delegations import open_token
from antiphon.core.record.branches import Branch
from antiphon.core.record.ids import short_node
from antiphon.core.record.op import Body, Op
from antiphon.core.ucan import Delegation

UCAN: Final = Branch(stem="ctl.ucan", shape="control", via_gate=True)
REVOKE: Final = Branch(stem="ctl.revoke", shape="control", via_gate=True)
_SHORT_CID: Final = 8


class DelegateBody(Body, frozen=True):
    """Puts a UCAN delegation on the log: unpadded base64url of its envelope."""

    token: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+\Z", max_length=24 * 1024)]

    @property
    def delegation(self) -> Delegation:
        """The delegation in the token; `Malformed` if there is none."""
        return open_token(self.token)


class RevokeBody(Body, frozen=True):
    """Ends a delegation, and everything below it, from here on."""

    cid: Annotated[str, Meta(pattern=r"^b[a-z2-7]{20,100}\Z")]


class UcanDelegate(Op, frozen=True, tag="ucan.delegate"):
    """Grants."""

    body: DelegateBody
    BRANCH: ClassVar[Branch] = UCAN

    def subject(self, mesh: str) -> str:
        """One for each delegation."""
        return f"ap.{mesh}.{UCAN.stem}.{self.body.delegation.cid}"

    def words(self) -> str:
        """In a sentence."""
        delegation = self.body.delegation
        claims, alias = delegation.payload, grant_terms.alias_of(delegation)
        whom = short_node(claims.aud) + (f" ({alias})" if alias else "")
        what = f"everything that {short_node(claims.iss)} holds"
        if claims.subject is not None:
            right = grant_terms.command_in_words(claims.cmd)
            what = f"{right} {grant_terms.kinds_in_words(delegation)}"
        return f"recorded a delegation to {whom}: {what}"


class UcanRevoke(Op, frozen=True, tag="ucan.revoke"):
    """Revokes a delegation."""

    body: RevokeBody
    BRANCH: ClassVar[Branch] = REVOKE

    def subject(self, mesh: str) -> str:
        """One for each delegation."""
        return f"ap.{mesh}.{REVOKE.stem}.{self.body.cid}"

    def words(self) -> str:
        """In a sentence."""
        return f"revoked the delegation {self.body.cid[-_SHORT_CID:]}"
