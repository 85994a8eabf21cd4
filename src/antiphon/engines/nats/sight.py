"""What a scope shows of the log: kind filters turned into subject filters, and their arithmetic.

Pure. Both ends use it: the gate to leave out what a member may not see, the member to know what
is worth asking for.

A kind filter becomes a filter on the subjects behind `job`, `wait` and `call.<class>`, which end
in one token more, the job: `render.>` is `render.*.>` (never the kind `render` itself) and
`render.video` is `render.video.*` (never a kind below it).

The NATS server takes wildcards in a *request's* subject for ordinary tokens when it looks at
permissions, and for wildcards when it looks for the record, walking every subject that matches.
So no record of a lane can be had straight from the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec import Struct

from antiphon.core import subjects
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.scope import EVERY_KIND, Scope, fewest

_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)
_WILDCARDS = frozenset("*>")
_TOKEN = r"[^.]+"
_LANE_FILTERS = (
    ("call.*", [f"call.{one}" for one in job_subjects.CLASSES]),
    ("*", ["wait", "job"]),
)


class Reader(Struct, frozen=True):
    """A member that reads within a scope: its engine user's public key, and what it may read.

    A scope that is a function is asked again when the connection changes.
    """

    user: str
    scope: Scope | Callable[[], Scope]

    def reads(self) -> tuple[str, ...]:
        """The kinds that it may read now."""
        scope = self.scope() if callable(self.scope) else self.scope
        return scope.reads


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


def is_within(inner: str, outer: str) -> bool:
    """Whether every subject that matches `inner` matches `outer`."""
    return meet(inner, outer) == inner


def lane_subjects(mesh: str, pattern: str) -> tuple[str, ...]:
    """The literal subjects that a lane's filter stands for; any other filter as it is."""
    root = subjects.root(mesh)
    for start, places in _LANE_FILTERS:
        rest = pattern.removeprefix(f"{root}.{start}.")
        if rest != pattern and "." in rest and is_literal(rest):
            return tuple(f"{root}.{place}.{rest}" for place in places)
    return (pattern,)


# --- sight ------------------------------------------------------------------------------------


class Sight:
    """What a scope's kind filters show of one mesh's log."""

    def __init__(self, mesh: str, reads: Iterable[str]) -> None:
        self.kinds = kinds = fewest(reads)
        """What may be read, as kind filters."""
        self.everything = f"{subjects.root(mesh)}.>"
        self.is_whole = EVERY_KIND in kinds
        self.filters = (self.everything,) if self.is_whole else tuple(_shown(mesh, kinds))
        """What may be read; no two of them overlap."""
        self.live = tuple(_shown(mesh, _audible(kinds)))
        """What of the republished records may be heard."""
        self._shows = _matcher(self.filters)

    def sees(self, subject: str) -> bool:
        """Whether a record on this subject may be read."""
        return self._shows(subject) is not None

    def parts(self, pattern: str) -> tuple[str, ...]:
        """The parts of a filter that may be read; no two of them overlap."""
        if is_literal(pattern):
            return (pattern,) if self.sees(pattern) else ()
        return _meets(pattern, self.filters)

    def hints(self, pattern: str) -> tuple[str, ...]:
        """The filters under which records of this filter may be heard live, perhaps none."""
        return _meets(pattern, self.live)


@lru_cache(maxsize=1024)
def sight_of(mesh: str, reads: tuple[str, ...]) -> Sight:
    """The sight that goes with a scope's `reads`."""
    return Sight(mesh, reads)


def _shown(mesh: str, kinds: Iterable[str]) -> list[str]:
    """Control ops and seals are everybody's; lanes go by kind."""
    root = subjects.root(mesh)
    ends = [_behind_the_kind(one) for one in kinds]
    return [
        subjects.all_control(mesh),
        subjects.seal(mesh),
        *(f"{root}.{what}.{end}" for end in ends for what in ("job", "wait", "call.*")),
    ]


def _audible(kinds: tuple[str, ...]) -> list[str]:
    """The kind filters that the second wall lets through (`permissions`).

    Hearing nothing below a kind that is named exactly takes a denial, which would reach what is
    in scope below it.
    """
    return [
        one
        for one in kinds
        if one.endswith(">")
        or f"{one}.>" in kinds
        or not any(other.startswith(f"{one}.") for other in kinds)
    ]


def _behind_the_kind(kind_filter: str) -> str:
    if kind_filter == EVERY_KIND:
        return kind_filter
    if kind_filter.endswith(".>"):
        return f"{kind_filter[:-1]}*.>"
    return f"{kind_filter}.*"


def _meets(pattern: str, filters: Iterable[str]) -> tuple[str, ...]:
    return tuple(both for one in filters if (both := meet(pattern, one)) is not None)


def _matcher(filters: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    """`fullmatch` of one expression for all of them: its cost hardly grows with their number."""
    return re.compile("|".join(map(_expression, filters))).fullmatch


def _expression(pattern: str) -> str:
    tokens = {"*": _TOKEN, ">": rf"{_TOKEN}(?:\.{_TOKEN})*"}
    return r"\.".join(tokens.get(one) or re.escape(one) for one in pattern.split("."))
