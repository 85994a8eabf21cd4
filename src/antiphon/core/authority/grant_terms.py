"""The words people use to grant permissions, and the delegations that they become.

`claim render.* until Friday` becomes one delegation per command, since a UCAN has one. If you need
a policy that these words cannot express, sign a delegation by hand. Which words there are is said
by the families of a protocol: `protocol.rights`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Struct, UnsetType

from antiphon.core.authority import job_rights
from antiphon.core.authority.delegations import MESH_META
from antiphon.core.authority.scope import EVERY_KIND, filter_of, kinds_of
from antiphon.core.ucan import TOP, Payload, Policy
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antiphon.core.ucan import Delegation

ALL: Final = "all"
"""The word for everything."""
MAX_ALIAS_LENGTH: Final = 64
NONCE_BYTES: Final = 12
_ALIAS: Final = "alias"
NETWORK: Final = "network"
"""Metadata that allows commands to use the network if every link of a chain has it."""
AUDIT: Final = "audit_inference"
"""Metadata that has model calls audited if any link of a chain has it."""


class Terms(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grant in words."""

    can: tuple[str, ...]
    kinds: tuple[str, ...] = ("*",)
    """`render.video`, `render.*` or `*`."""
    until_s: int | None = None
    """The last second in which it is valid; None for no end."""
    alias: str = ""
    """A name for the audience."""
    network: bool = False
    """Whether commands that are claimed under it may use the network."""
    audit: bool = False
    """Whether the model calls of what is claimed under it are audited."""


class Rights:
    """The words of one protocol, and the commands that each of them grants."""

    def __init__(self, words: Mapping[str, tuple[str, ...]]) -> None:
        """Those of the families; `all` is added."""
        self.words: Mapping[str, tuple[str, ...]] = {**words, ALL: (TOP,)}

    def check(self, terms: Terms) -> Terms:
        """`terms`, or `Malformed` with the word that is not valid."""
        for word in terms.can:
            if word not in self.words:
                raise Malformed(
                    f"{word!r} is not a permission",
                    reason="right",
                    hint=f"choose from: {', '.join(self.words)}",
                )
        for glob in terms.kinds:
            if filter_of(glob) is None:
                raise Malformed(
                    f"{glob!r} is not a kind or a pattern of kinds",
                    reason="kind",
                    hint="write a kind ('render.video'), everything below one ('render.*'), or '*'",
                )
        if not terms.can or not terms.kinds:
            raise Malformed("a grant needs at least one permission and one kind", reason="right")
        check_alias(terms.alias)
        return terms

    def word_for(self, command: str) -> str:
        """The word that grants a command and the least besides; `all` if no other does."""
        exact = [word for word, commands in self.words.items() if command in commands]
        if exact:
            return min(exact, key=lambda word: len(self.words[word]))
        known = self.words.items()
        covered = (w for w, cs in known if any(command.startswith(f"{c}/") for c in cs))
        return next(covered, ALL)

    def how_to_grant(self, command: str, kind: str, node: str = "NODE") -> str:
        """What the owner types, so that a node may do this with a kind."""
        right, of_kind = self.word_for(command), f" --kind {kind}" if kind else ""
        return f"antiphon delegate {node} --can {right}{of_kind}"

    def in_words(self, command: str) -> str:
        """The word whose first command this is, or the command in words."""
        found = (word for word, commands in self.words.items() if commands[0] == command)
        return next(found, command_in_words(command))

    def payloads(
        self,
        terms: Terms,
        *,
        issuer: str,
        audience: str,
        owner: str,
        nonce: Callable[[int], bytes],
        mesh: str = "",
    ) -> list[Payload]:
        """The delegations for these terms, not signed yet."""
        self.check(terms)
        commands = dict.fromkeys(command for word in terms.can for command in self.words[word])
        if TOP in commands:
            commands = {TOP: None}
        return [
            Payload(
                iss=issuer,
                aud=audience,
                sub=owner,
                cmd=command,
                pol=Policy([] if command in job_rights.TEMPO_BY else _policy(terms.kinds)),
                nonce=nonce(NONCE_BYTES),
                exp=terms.until_s,
                meta=_meta(terms.alias, mesh, network=terms.network, audit=terms.audit),
            )
            for command in commands
        ]


def command_in_words(command: str) -> str:
    """A command as people read it: `job claim`."""
    return command.strip("/").replace("/", " ") or "everything"


def check_alias(alias: str) -> None:
    """`Malformed` if it is too long or not printable."""
    if len(alias) > MAX_ALIAS_LENGTH or not alias.isprintable():
        raise Malformed(
            f"an alias has up to {MAX_ALIAS_LENGTH} printable characters", reason="alias"
        )


def passing_on(
    *, issuer: str, audience: str, mesh: str, alias: str, nonce: Callable[[int], bytes]
) -> Payload:
    """A machine's delegation to one of its own processes: whatever the machine has.

    That includes the network; the delegations above it decide.
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


def _meta(
    alias: str, mesh: str, *, network: bool, audit: bool = False
) -> dict[str, Any] | UnsetType:
    named = {_ALIAS: alias, MESH_META: mesh, NETWORK: network, AUDIT: audit}
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
    """The issuer's alias for the audience; empty if there is none."""
    meta = delegation.payload.meta
    alias = meta.get(_ALIAS) if isinstance(meta, dict) else None
    return alias[:MAX_ALIAS_LENGTH] if isinstance(alias, str) and alias.isprintable() else ""


def kinds_in_words(delegation: Delegation) -> str:
    """The kinds that a delegation is about, as people write them."""
    filters = kinds_of(delegation.payload.pol.source)
    if filters == (EVERY_KIND,):
        return "*"
    return ", ".join(one[:-1] + "*" if one.endswith(".>") else one for one in filters) or "none"
