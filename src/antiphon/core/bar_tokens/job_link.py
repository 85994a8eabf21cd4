"""Links: what a key gives to somebody without one, to look at one job until a time (spec §11).

    {"delegation":[…],"kind":"report.render","job":"<64 hex>","outputs":false,"until_ms":…}

A signed message of its own type, as text for a link. It opens one job and nothing else: it is not a
bar-bound token, and no other place takes it for one. Its signer needs the right to read the kind
whenever it is used: a revocation ends it at once, and its time ends it in any case.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from antiphon.core.authority.scope import admits, has_ended, kinds_of_chain
from antiphon.core.bar_tokens.bar_token import (
    COMMANDS,
    MAX_BYTES,
    MAX_CID,
    NO_END,
    Refusal,
    raw_token,
)
from antiphon.core.bus.signed_message import MessageType, Refused, Signer
from antiphon.core.record.op import Count, Kind
from antiphon.core.ucan import MAX_LINKS, covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control

MAX_MS: Final = 30 * 24 * 3_600_000
"""How long a link works at most."""
SUBJECT: Final = "link"


class JobLink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a link says."""

    delegation: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_CID)], ...], Meta(max_length=MAX_LINKS)
    ] = ()
    """The CIDs of the signer's chain, from the owner on; none if the signer is the owner."""
    kind: Kind
    job: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    outputs: bool = False
    """Whether it opens what the job wrote and prints, too."""
    until_ms: Count


LINKS: Final = MessageType("job-link", JobLink, max_bytes=MAX_BYTES)


class OpenedLink(Struct, frozen=True, kw_only=True):
    """A valid link, and who signed it."""

    signer: str
    link: JobLink


def issue_link(link: JobLink, signer: Signer, *, mesh: str) -> str:
    """A signed link as text."""
    raw = LINKS.sign(link, signer, mesh=mesh, subject=SUBJECT)
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def check_link(text: str, *, control: Control, now_ms: int, own: str) -> OpenedLink | Refusal:
    """The link in this text, or why it is refused; never raises.

    `own` is a key that may read everything without delegations: that of the node that is asked.
    """
    raw = raw_token(text)
    message = None if raw is None else LINKS.open(raw, mesh=control.mesh, subject=SUBJECT)
    if message is None:
        return Refusal.MALFORMED
    if isinstance(message, Refused):
        return _REFUSED.get(message, Refusal.MALFORMED)
    link = message.body
    if link.until_ms <= now_ms or link.until_ms > now_ms + MAX_MS:
        return Refusal.LATE
    fault = _fault(control, message.author, link, now_ms // 1000, own)
    return fault or OpenedLink(signer=message.author, link=link)


_REFUSED: Final = {Refused.MESH: Refusal.MESH, Refused.SIGNATURE: Refusal.SIGNATURE}


def _fault(control: Control, did: str, link: JobLink, now_s: int, own: str) -> Refusal | None:
    """Why the signer may not show this job now."""
    if did in (control.owner, own):
        return None
    if control.is_quarantined(did):
        return Refusal.QUARANTINED
    chain = control.grants.chain(control.owner, link.delegation, before=NO_END)
    if chain is None or chain.fault is not None or not chain.links or chain.holder != did:
        return Refusal.NO_CHAIN
    if has_ended(control, chain, now_s) or (chain.not_before or 0) > now_s:
        return Refusal.ENDED
    if not covers(chain.command, COMMANDS["read"]):
        return Refusal.ROLE
    is_shown = any(admits(one, link.kind) for one in kinds_of_chain(chain))
    return None if is_shown else Refusal.PROJECT
