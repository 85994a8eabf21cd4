"""Bar-bound tokens: a key's own short-lived credential for HTTP (spec §11).

    {"delegation":[…],"project":"build","role":"read","downbeat_ms":…,"bars":2}

A signed message of its own type, as text for an `Authorization` header. It names the chain of
delegations that its holder has, and narrows it: to a project, which is a kind prefix (`*`: every
kind), and to a role, which is one command. It is good for `bars` bars from the downbeat it names,
counted in downbeats, so a change of tempo does not prolong it. Whoever copies one can use it until
then, and for nothing else. Authority is judged when a token is used: a revocation counts at once.

An open mesh needs no chain for its log, because only members reach its engine. Anybody can reach a
port, so a token always needs a chain, or the owner's key.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from antiphon.core.authority.chain_choice import chains_to
from antiphon.core.authority.job_rights import ANSWERS, SEND_BY, TEMPO_BY
from antiphon.core.authority.scope import EVERY_KIND, Scope, has_ended, kinds_of_chain, meet
from antiphon.core.bus.signed_message import Message, MessageType, Refused, Signer
from antiphon.core.record import subjects
from antiphon.core.record.op import Count
from antiphon.core.ucan import MAX_LINKS, TOP, covers

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.bar_tokens.bar_count import BarCount
    from antiphon.core.ucan import Chain

BARS: Final = 2
"""The bars that a token is good for, the one it was issued in included."""
EVERY_PROJECT: Final = "*"
SUBJECT: Final = "http"
"""What the message is for: no bus subject has this name."""
MAX_BYTES: Final = 4096
MAX_TEXT: Final = -(-MAX_BYTES // 3) * 4
MAX_CID: Final = 80
NO_END: Final = 2**63

Role = Literal["read", "schedule", "claim", "cancel", "answer", "message", "tempo", "all"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
COMMANDS: Final[dict[Role, str]] = {
    "read": "/job/read",
    "schedule": "/job/schedule",
    "claim": "/job/claim",
    "cancel": "/job/cancel",
    "answer": ANSWERS,
    "message": SEND_BY[0],
    "tempo": TEMPO_BY[0],
    "all": TOP,
}
"""The command of each role."""


class BarToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a token says."""

    delegation: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_CID)], ...], Meta(max_length=MAX_LINKS)
    ] = ()
    """The CIDs of the holder's chain, from the owner on; none if the holder is the owner."""
    project: Annotated[str, Meta(max_length=subjects.MAX_KIND_LENGTH)]
    role: Role
    downbeat_ms: Count
    """When the bar began in which it was issued; where no beats are heard, when it was issued."""
    bars: Annotated[int, Meta(ge=1, le=BARS)] = BARS


TOKENS: Final = MessageType("bar-token", BarToken, max_bytes=MAX_BYTES)


class Refusal(StrEnum):
    """Why a token is refused."""

    MALFORMED = "malformed"
    MESH = "mesh"
    SIGNATURE = "signature"
    EARLY = "early"
    """Its downbeat is yet to come."""
    LATE = "late"
    """Its bars are over."""
    QUARANTINED = "quarantined"
    NO_CHAIN = "no_chain"
    ENDED = "ended"
    """A delegation of its chain was revoked, has expired, or is not valid yet."""
    ROLE = "role"
    """The chain does not grant the role's command."""
    PROJECT = "project"
    """The chain grants no kind of the project."""


class Bearer(Struct, frozen=True, kw_only=True):
    """Whoever sent a valid token, and what it permits."""

    holder: str
    """The key, or a word for somebody without one."""
    command: str
    kinds: tuple[str, ...]
    """Kind filters."""
    auth: tuple[str, ...] = ()
    """The delegations that the token names."""
    project: str = EVERY_PROJECT
    """What its token is for; the kinds say what of that its delegations grant."""
    member: str = ""
    """The member that the holder acts for: a key that the owner delegated to."""
    counted: str = ""
    """For whom its requests are counted, if not for the member."""

    @property
    def party(self) -> str:
        """For whom requests are counted."""
        return self.counted or self.member or self.holder

    def may(self, *commands: str) -> bool:
        """Whether it permits one of these commands, for some kind."""
        return any(covers(self.command, command) for command in commands)

    @property
    def has_every_kind(self) -> bool:
        """Whether it is limited to no project."""
        return EVERY_KIND in self.kinds

    @property
    def scope(self) -> Scope:
        """What it permits, for which kinds."""
        return Scope(by_command={self.command: self.kinds})


def issue(token: BarToken, holder: Signer, *, mesh: str) -> str:
    """A signed token as text."""
    raw = TOKENS.sign(token, holder, mesh=mesh, subject=SUBJECT)
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def check(text: str, *, control: Control, bars: BarCount, now_ms: int) -> Bearer | Refusal:
    """Who sent this token and what it permits now, or why it is refused; never raises."""
    message = open_token(text, mesh=control.mesh)
    if isinstance(message, Refusal):
        return message
    token = message.body
    if token.downbeat_ms > now_ms + bars.meter.beat_ms:
        return Refusal.EARLY
    if bars.since(token.downbeat_ms, now_ms) >= token.bars:
        return Refusal.LATE
    kinds = _kinds(control, message.author, token, now_ms // 1000)
    if isinstance(kinds, Refusal):
        return kinds
    return Bearer(
        holder=message.author,
        command=COMMANDS[token.role],
        kinds=kinds,
        auth=token.delegation,
        project=token.project,
        member=member_of(control, message.author, token.delegation),
    )


def open_token(text: str, *, mesh: str) -> Message[BarToken] | Refusal:
    """What a token says and who signed it, or why it is refused; never raises."""
    raw = raw_token(text)
    if raw is None:
        return Refusal.MALFORMED
    message = TOKENS.open(raw, mesh=mesh, subject=SUBJECT)
    return _REFUSED.get(message, Refusal.MALFORMED) if isinstance(message, Refused) else message


def still_holds(control: Control, bearer: Bearer, now_s: int) -> bool:
    """Whether what admitted a bearer is still granted: for answers that last longer than a token.

    The bars of its token are over after a minute, and end nothing that has begun.
    """
    if bearer.holder == control.owner:
        return True
    chain = control.grants.chain(control.owner, bearer.auth, before=NO_END)
    if chain is None or chain.fault is not None or chain.holder != bearer.holder:
        return False
    return not control.is_quarantined(bearer.holder) and not has_ended(control, chain, now_s)


def member_of(control: Control, did: str, auth: tuple[str, ...]) -> str:
    """The member that a key acts for by this chain: the key that the owner delegated to.

    A member makes as many keys as it likes, and all of them have what one of them has.
    """
    chain = control.grants.chain(control.owner, auth, before=NO_END) if auth else None
    return chain.links[0].payload.aud if chain is not None and did != control.owner else did


_REFUSED: Final = {Refused.MESH: Refusal.MESH, Refused.SIGNATURE: Refusal.SIGNATURE}


def raw_token(text: str) -> bytes | None:
    """The bytes of a token's text; None if it is none."""
    if len(text) > MAX_TEXT:
        return None
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return None


def _kinds(control: Control, did: str, token: BarToken, now_s: int) -> tuple[str, ...] | Refusal:
    """The kinds of the project for which the holder has the role."""
    wanted = kinds_of_project(token.project)
    if not wanted:
        return Refusal.MALFORMED
    if did == control.owner:
        return wanted
    if control.is_quarantined(did):
        return Refusal.QUARANTINED
    chain = control.grants.chain(control.owner, token.delegation, before=NO_END)
    if chain is None or chain.fault is not None or not chain.links or chain.holder != did:
        return Refusal.NO_CHAIN
    return _granted(control, chain, COMMANDS[token.role], wanted, now_s)


def _granted(
    control: Control, chain: Chain, command: str, wanted: tuple[str, ...], now_s: int
) -> tuple[str, ...] | Refusal:
    """The kinds among those wanted for which a chain grants a command now."""
    if has_ended(control, chain, now_s) or (chain.not_before or 0) > now_s:
        return Refusal.ENDED
    if not covers(chain.command, command):
        return Refusal.ROLE
    return meet((kinds_of_chain(chain), wanted)) or Refusal.PROJECT


def kinds_of_project(project: str) -> tuple[str, ...]:
    """The kind filters of a project: the kind of that name, and all below; empty if it is none."""
    if project == EVERY_PROJECT:
        return (EVERY_KIND,)
    return (project, f"{project}.>") if subjects.is_kind(project) else ()


def choose_chain(
    control: Control, did: str, *, project: str, role: Role, now_ms: int
) -> tuple[str, ...] | Refusal:
    """The chain that a holder should name: one with the whole project, else the shortest.

    If there is none, what the nearest one lacks.
    """
    if did == control.owner:
        return ()
    wanted = kinds_of_project(project)
    best: tuple[str, ...] = ()
    lacks = Refusal.NO_CHAIN
    for chain in chains_to(control.grants, control.owner, did, before=NO_END):
        kinds = _granted(control, chain, COMMANDS[role], wanted, now_ms // 1000)
        if isinstance(kinds, Refusal):
            lacks = max(lacks, kinds, key=_NEARNESS.index)
        elif not best or kinds == wanted:
            best = tuple(link.cid for link in chain.links)
            if kinds == wanted:
                break
    return best or lacks


_NEARNESS: Final = (Refusal.NO_CHAIN, Refusal.ENDED, Refusal.ROLE, Refusal.PROJECT)
