"""What a member sees of one mesh's log, and the arithmetic of subject filters.

Both ends use it: the gate to leave out what a member may not see, the member to know what
is worth asking for. Which subjects a scope admits is the core's (`core.authority.subject_rights`).

The NATS server takes wildcards in a *request's* subject for ordinary tokens when it looks at
permissions, and for wildcards when it looks for the record, walking every subject that matches.
So no record of a lane can be read straight from the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import Struct

from antiphon.core.authority.grant_terms import Rights
from antiphon.core.authority.scope import Scope
from antiphon.core.authority.subject_rights import WHOLE, SubjectRights, rights_on
from antiphon.core.record import subjects
from antiphon.core.record.branches import Branch

_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
_WILDCARDS = frozenset("*>")
_TOKEN = r"[^.]+"


class Reader(Struct, frozen=True):
    """A member that reads within a scope: its engine user's public key, and what it may.

    A scope that is a function is called again when the connection changes.
    """

    user: str
    scope: Scope | Callable[[], Scope]
    branches: tuple[Branch, ...]
    """Of the log that it reads."""
    rights: Rights
    """What people call the permissions to read there."""

    def visible(self, mesh: str) -> VisibleSubjects:
        """What it sees now."""
        scope = self.scope() if callable(self.scope) else self.scope
        return sight_of(mesh, self.branches, scope)


# --- filters ----------------------------------------------------------------------------------


def is_filter(text: str) -> bool:
    """Whether `text` is a subject or a filter: whole tokens, and `>` only at the end."""
    tokens = text.split(".")
    return _PRINTABLE.fullmatch(text) is not None and all(tokens) and ">" not in tokens[:-1]


def is_literal(pattern: str) -> bool:
    """Whether a filter is one subject: nothing in it could be taken for a wildcard."""
    return _WILDCARDS.isdisjoint(pattern)


def meet(one: str, other: str) -> str | None:
    """The filter of all subjects that match both; None if there are none."""
    left, right = one.split("."), other.split(".")
    both: list[str] = []
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a == ">":
            return ".".join(both + right[at:])
        if b == ">":
            return ".".join(both + left[at:])
        if a not in ("*", b) and b != "*":
            return None
        both.append(b if a == "*" else a)
    return ".".join(both) if len(left) == len(right) else None


# --- sight ------------------------------------------------------------------------------------


class VisibleSubjects:
    """What some rights show of one mesh's log."""

    def __init__(self, mesh: str, rights: SubjectRights) -> None:
        root = subjects.root(mesh)
        self.shown = rights.shown
        """What may be read, as filters relative to the mesh."""
        self.everything = f"{root}.>"
        self.is_whole = rights.shown == WHOLE
        self.filters = tuple(f"{root}.{one}" for one in rights.shown)
        """What may be read; no two of them overlap."""
        self.live = tuple(f"{root}.{one}" for one in rights.heard)
        """Which republished records may be subscribed to."""
        self._shows = _matcher(self.filters)
        self._relays = _matcher(f"{root}.{one}" for one in rights.relayed)

    def sees(self, subject: str) -> bool:
        """Whether a record on this subject may be read."""
        return self._shows(subject) is not None

    def relays(self, subject: str) -> bool:
        """Whether a record on this subject goes through the gate."""
        return self._relays(subject) is not None

    def parts(self, pattern: str) -> tuple[str, ...]:
        """The parts of a filter that may be read; no two of them overlap."""
        if is_literal(pattern):
            return (pattern,) if self.sees(pattern) else ()
        return _meets(pattern, self.filters)

    def hints(self, pattern: str) -> tuple[str, ...]:
        """The filters under which records of this filter may be received live, perhaps none."""
        return _meets(pattern, self.live)


@lru_cache(maxsize=1024)
def sight_of(mesh: str, branches: tuple[Branch, ...], scope: Scope) -> VisibleSubjects:
    """What a scope shows of a log with these branches."""
    return VisibleSubjects(mesh, rights_on(branches, scope))


def _meets(pattern: str, filters: Iterable[str]) -> tuple[str, ...]:
    return tuple(both for one in filters if (both := meet(pattern, one)) is not None)


def _matcher(filters: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """`fullmatch` of one expression for all of them: its cost hardly grows with their number."""
    return re.compile("|".join(map(_expression, filters))).fullmatch


def _expression(pattern: str) -> str:
    tokens = {"*": _TOKEN, ">": rf"{_TOKEN}(?:\.{_TOKEN})*"}
    return r"\.".join(tokens.get(one) or re.escape(one) for one in pattern.split("."))
