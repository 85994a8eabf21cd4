"""Delegations and revocations as ops (spec §6).

Members send both to the gate, for two reasons. Every node reads all control records, so no member
may flood them. And the subject of a revocation is known in advance: a member that could publish
there could keep everyone else from revoking.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from antiphon.core.authority.delegations import open_token
from antiphon.core.record.branches import Branch
from antiphon.core.record.op import Body, Op
from antiphon.core.ucan import Delegation

UCAN: Final = Branch(stem="ctl.ucan", shape="control", via_gate=True)
REVOKE: Final = Branch(stem="ctl.revoke", shape="control", via_gate=True)


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


class UcanRevoke(Op, frozen=True, tag="ucan.revoke"):
    """Revokes a delegation."""

    body: RevokeBody
    BRANCH: ClassVar[Branch] = REVOKE

    def subject(self, mesh: str) -> str:
        """One for each delegation."""
        return f"ap.{mesh}.{REVOKE.stem}.{self.body.cid}"
