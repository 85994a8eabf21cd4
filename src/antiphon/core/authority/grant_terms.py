"""What people say when they hand out a right, and the delegations that say the same.

`claim render.* until Friday` becomes one delegation per command, since a UCAN carries one. The
words are few; whoever needs a policy that they cannot express can sign any delegation by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, UnsetType

from antiphon.core.authority.delegations import MESH_META
from antiphon.core.authority.scope import EVERY_KIND, filter_of, kinds_of
from antiphon.core.ucan import TOP, Payload, Policy
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.core.ucan import Delegation

RIGHTS: Final[dict[str, tuple[str, ...]]] = {
    "claim": ("/job/claim", "/job/complete"),
    "schedule": ("/job/schedule", "/job/read"),
    "read": ("/job/read",),
    "cancel": ("/job/cancel",),
    "all": (TOP,),
}
"""What each word stands for: who claims must be able to complete, who calls to see the result."""
MAX_ALIAS_LENGTH: Final = 64
NONCE_BYTES: Final = 12
_ALIAS: Final = "alias"
NETWORK: Final = "network"
"""Metadata that lets commands have the network where every link of a chain says so."""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant in words."""

    can: tuple[str, ...]
    kinds: tuple[str, ...] = ("*",)
    """`render.video`, `render.*` or `*`."""
    until_s: int | None = None
    """The last second in which it holds; None for no end."""
    alias: str = ""
    """What the person calls whom it is granted to."""
    network: bool = False
    """Whether commands that are claimed under it may have the network."""


def check(terms: Terms) -> Terms:
    """`terms`, or `Malformed` with the word that makes no sense."""
    for word in terms.can:
        if word not in RIGHTS:
            raise Malformed(
                f"nobody can {word!r}", reason="right", hint=f"choose from: {', '.join(RIGHTS)}"
            )
    for glob in terms.kinds:
        if filter_of(glob) is None:
            raise Malformed(
                f"{glob!r} names no kinds",
                reason="kind",
                hint="write a kind ('render.video'), everything below one ('render.*'), or '*'",
            )
    if not terms.can or not terms.kinds:
        raise Malformed("a grant needs something that it allows, and kinds", reason="right")
    check_alias(terms.alias)
    return terms


def check_alias(alias: str) -> None:
    """`Malformed` if people could not read it in a list."""
    if len(alias) > MAX_ALIAS_LENGTH or not alias.isprintable():
        raise Malformed(
            f"an alias has up to {MAX_ALIAS_LENGTH} letters, all of them visible", reason="alias"
        )


def payloads(
    terms: Terms,
    *,
    issuer: str,
    audience: str,
    owner: str,
    nonce: Callable[[int], bytes],
    mesh: str = "",
) -> list[Payload]:
    """The delegations that these terms amount to, not signed yet."""
    check(terms)
    commands = dict.fromkeys(command for word in terms.can for command in RIGHTS[word])
    if TOP in commands:
        commands = {TOP: None}
    return [
        Payload(
            iss=issuer,
            aud=audience,
            sub=owner,
            cmd=command,
            pol=Policy(_policy(terms.kinds)),
            nonce=nonce(NONCE_BYTES),
            exp=terms.until_s,
            meta=_meta(terms.alias, mesh, network=terms.network),
        )
        for command in commands
    ]


def passing_on(
    *, issuer: str, audience: str, mesh: str, alias: str, nonce: Callable[[int], bytes]
) -> Payload:
    """A machine's standing grant to one of its own processes: whatever the machine holds.

    That includes the network, which the grants above it give or do not give.
    """
    return Payload(
        iss=issuer,
        aud=audience,
        sub=None,
        cmd=TOP,
        pol=Policy([]),
        nonce=nonce(NONCE_BYTES),
        exp=None,
        meta=_meta(alias, mesh, network=True),
    )


def _meta(alias: str, mesh: str, *, network: bool) -> dict[str, Any] | UnsetType:
    named = {_ALIAS: alias, MESH_META: mesh, NETWORK: network}
    return {key: value for key, value in named.items() if value} or UNSET


def _policy(kinds: tuple[str, ...]) -> list[Any]:
    filters = [filter_of(glob) for glob in kinds]
    if EVERY_KIND in filters:
        return []
    statements: list[Any] = [
        ["like", ".kind", glob] if glob.endswith("*") else ["==", ".kind", glob]
        for glob in dict.fromkeys(kinds)
    ]
    return statements if len(statements) == 1 else [["or", statements]]


def alias_of(delegation: Delegation) -> str:
    """What the issuer calls the audience; empty if it gave no name."""
    meta = delegation.payload.meta
    alias = meta.get(_ALIAS) if isinstance(meta, dict) else None
    return alias[:MAX_ALIAS_LENGTH] if isinstance(alias, str) and alias.isprintable() else ""


def rights_of(command: str) -> str:
    """A command in the words above, or itself."""
    for word in ("claim", "schedule", "read", "cancel"):
        if RIGHTS[word][0] == command:
            return word
    return {TOP: "all", "/job": "all jobs", "/job/complete": "complete"}.get(command, command)


def kinds_in_words(delegation: Delegation) -> str:
    """The kinds that a delegation is about, as people write them."""
    filters = kinds_of(delegation.payload.pol.source)
    if filters == (EVERY_KIND,):
        return "*"
    return ", ".join(one[:-1] + "*" if one.endswith(".>") else one for one in filters) or "none"
