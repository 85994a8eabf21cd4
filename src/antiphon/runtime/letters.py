"""Which revocations and evidence of members the gate puts on the log: those that the rules accept.

It keeps a subject free on which others must be able to write, and decides nothing by it: what is
refused here would be rejected, or without effect, on the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core import ops
from antiphon.core.ids import message_id
from antiphon.core.reasons import Reason
from antiphon.core.records import Entry, open_anywhere
from antiphon.core.wallet import chains_to
from antiphon.errors import LostRace, Rejected

if TYPE_CHECKING:
    from antiphon.core.control import Control
    from antiphon.runtime.members import MemberBook
    from antiphon.runtime.peer import Peer

_ANY_TIME: Final = 2**63


class Letters:
    """Looks through what members bring."""

    def __init__(self, peer: Peer, members: MemberBook) -> None:
        self._peer = peer
        self._members = members

    async def accept(self, user: str, payload: bytes) -> tuple[str, str, int]:
        """A record's subject, message id and predecessor; `Rejected` if it is not worth storing."""
        if self._members.by_user(user) is None:
            raise Rejected("the gate does not know this machine", reason="member")
        peer = self._peer
        await peer.sync_control()
        shown = open_anywhere(peer.mesh, payload)
        op = shown.op
        if not isinstance(op, ops.UcanRevoke | ops.MeshEvidence):
            raise Rejected("the gate takes revocations and evidence, and nothing else", reason="op")
        seq = peer.history.applied + 1
        entry = Entry(seq, peer.wall.now_ms(), shown.subject, op, shown.op_id, None)
        verdict = peer.history.foresee(entry)
        if verdict is Reason.PREV:
            raise LostRace(f"{shown.subject} is no longer at {op.prev}")
        if verdict is not Reason.OK:
            raise Rejected(f"{op.TYPE} would be rejected: {verdict.in_words}", reason=verdict.value)
        if isinstance(op, ops.UcanRevoke):
            _check_effect(peer.control, op.body.cid, op.author)
        return shown.subject, message_id(payload), op.prev


def _check_effect(control: Control, cid: str, author: str) -> None:
    """`Rejected` unless the revocation ends something, now or when a chain comes to use it.

    Anybody can write delegations to the owner, and so come to stand above everything in the
    book: that is no harm in a chain, but a way to fill a subject.
    """
    grants, before = control.grants, _ANY_TIME
    link = grants.find(cid, before=before)
    if link is None:
        raise Rejected(f"there is no delegation {cid[-8:]}", reason=Reason.NO_CHAIN.value)
    if author in grants.revoked((cid,), before=before).get(cid, ()):
        raise Rejected(f"{cid[-8:]} is revoked already", reason=Reason.ALREADY.value)
    if author in {control.owner, link.issuer}:
        return
    chains = chains_to(grants, control.owner, link.audience, before=before)
    if not any(chain.may_revoke(author, cid) for chain in chains):
        raise Rejected(
            f"{cid[-8:]} can be taken back by its issuer, and by those above it",
            reason=Reason.NO_CHAIN.value,
        )
