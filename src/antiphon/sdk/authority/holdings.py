"""Who has which permissions on a mesh, and which node a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.authority.grant_reach import Grant
from antiphon.core.authority.scope import scope_of
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import public_key_of, short_node
from antiphon.errors import Rejected
from antiphon.runtime.caller.holdings import Holdings, holdings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.sdk.connection.connection import Connection
    from antiphon.sdk.connection.namespace import Connected

OWNER_KEY: Final = "owner"
COORDINATOR: Final = "coordinator"


async def who(connection: Connection) -> Holdings:
    """Who has which permissions from whom, by everything that is on the log now."""
    await connection.session.sync_control()
    return holdings_of(connection.session, me=connection.did)


def may_submit(mesh: Connected) -> bool:
    """Whether this machine may submit jobs of any kind, by what it has read of the log."""
    session = mesh.connection.session
    now_s = session.wall.now_ms() // 1000
    scope = scope_of(session.control, session.protocol.branches, session.author.did, now_s)
    return bool(scope.of(JobSchedule.COMMAND))


# Permissions that another one includes, and that are not listed beside it.
_INCLUDED: Final = {"job complete": {"claim"}, "read": {"claim", "schedule"}}


def rights_of(command: str) -> str:
    """The word that a command is granted with, or the command in words."""
    return PROTOCOL.rights.in_words(command)


def in_words(grants: Iterable[Grant]) -> str:
    """What grants allow, in words: `claim render.*; schedule every kind`."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for one in grants:
        about = ("passes on",) if one.is_powerline else one.kinds
        alike.setdefault(about, []).append(rights_of(one.command))
    return "; ".join(rights_in_words(rights, about) for about, rights in alike.items())


def rights_in_words(rights: Iterable[str], kinds: tuple[str, ...]) -> str:
    """Permissions over kinds in a few words."""
    said = set(rights)
    words = ", ".join(one for one in dict.fromkeys(rights) if not _INCLUDED.get(one, set()) & said)
    if kinds == ("passes on",):
        return "passes on everything" if words == "all" else f"passes on {words}"
    if words == "all":
        return "everything" if kinds == ("*",) else f"everything with {', '.join(kinds)}"
    return f"{words} {'every kind' if kinds == ('*',) else ', '.join(kinds) or 'no whole kind'}"


def find_node(held: Holdings, text: str) -> str:
    """The node that a person means: a did:key, an alias, or the end of a known id."""
    word = text.strip()
    if word == OWNER_KEY:
        return held.owner
    if word == COORDINATOR:
        return held.coordinator
    if word.startswith("did:"):
        public_key_of(word)
        return word
    known = (held.coordinator, *held.routes.values(), *held.quarantined)
    found = held.tree.nodes_called(word, trusted=frozenset({held.me}), known=known)
    if not found:
        raise Rejected(
            f"no node with a grant is called {word!r}",
            reason="no_node",
            hint="antiphon who --all lists aliases; name a new node by its whole did:key,"
            " as antiphon nodes --json prints it",
        )
    if len(found) > 1:
        listed = ", ".join(sorted(held.called(did) for did in found))
        raise Rejected(
            f"{word!r} could be any of {listed}", reason="ambiguous", hint="type the end of its id"
        )
    return found.pop()


def require_owner(held: Holdings, what: str) -> None:
    """`Rejected` unless the key is the owner's: the log would only reject the op."""
    if held.me != held.owner:
        raise Rejected(
            f"only the owner of this mesh, {short_node(held.owner)}, may {what}",
            reason="not_owner",
            hint="run it on the machine that has the owner's key",
        )


def require_not_quarantined(held: Holdings) -> None:
    """`Rejected` if the key is quarantined."""
    if held.me in held.quarantined and held.me != held.owner:
        raise Rejected(
            f"this key, {short_node(held.me)}, is quarantined: all that it writes is rejected",
            reason="quarantined",
            hint=f"ask the owner, {short_node(held.owner)}, to readmit it",
        )
