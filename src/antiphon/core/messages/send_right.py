"""Who may send messages, and who may read them (spec §6, §10).

A sender needs `/message/send` for what it sends: policies test the message's fields, its `kind`
above all. A reader needs no permission of its own, but has to be a member: somebody whom a valid
chain leads to, whatever it grants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.job_rights import SEND_BY
from antiphon.core.record.verdict import Verdict
from antiphon.core.ucan import covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.messages.envelope import MessageBody
    from antiphon.core.ucan import Chain

(SEND,) = SEND_BY
_NO_END: Final = 2**63


class NodeRights(Struct, frozen=True):
    """The chains that lead to a node, as control is at one moment."""

    node: str
    is_free: bool
    """Whether it needs no chain: the owner's key, and every key on an open mesh."""
    chains: tuple[Chain, ...]
    """Those that nobody has revoked."""

    def is_member(self, now_s: int) -> bool:
        """Whether it may have an inbox and read it."""
        return self.is_free or any(_is_valid(chain, now_s) for chain in self.chains)

    @property
    def party(self) -> str:
        """For whom the node acts: the key that the owner delegated to, or the node itself."""
        return self.chains[0].links[0].payload.aud if self.chains else self.node


def rights_of(control: Control, node: str) -> NodeRights:
    """A node's rights. Quarantined keys have none."""
    if control.is_quarantined(node):
        return NodeRights(node, is_free=False, chains=())
    if control.rules.authority == "open" or node == control.owner:
        return NodeRights(node, is_free=True, chains=())
    chains = chains_to(control.grants, control.owner, node, before=_NO_END)
    return NodeRights(
        node, is_free=False, chains=tuple(one for one in chains if not _is_revoked(control, one))
    )


def fault(rights: NodeRights, body: MessageBody, now_s: int) -> Verdict | None:
    """Why a node may not send this message now, or None."""
    if rights.is_free:
        return None
    valid = [chain for chain in rights.chains if _is_valid(chain, now_s)]
    if not valid:
        return Verdict.NO_CHAIN
    serving = [chain for chain in valid if covers(chain.command, SEND)]
    if not serving:
        return Verdict.COMMAND
    arguments = policy_arguments(body)
    if any(chain.judge(rights.node, SEND, arguments, (now_s,)).ok for chain in serving):
        return None
    return Verdict.POLICY


def policy_arguments(body: MessageBody) -> dict[str, Any]:
    """What policies are checked against; the payload is not shown to them."""
    return {
        "kind": body.kind,
        "to": body.to,
        "node": body.node,
        "agent": body.agent,
        "sender": body.sender,
        "thread": body.thread,
        "priority": body.priority,
    }


def _is_valid(chain: Chain, now_s: int) -> bool:
    has_begun = chain.not_before is None or chain.not_before <= now_s
    return has_begun and (chain.expires is None or chain.expires >= now_s)


def _is_revoked(control: Control, chain: Chain) -> bool:
    cids = tuple(link.cid for link in chain.links)
    revoked = control.grants.revoked(cids, before=_NO_END)
    return any(chain.may_revoke(by, cid) for cid, who in revoked.items() for by in who)
