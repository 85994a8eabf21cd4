"""What a node may read and write, in whole kinds: what an engine can hold of its authority.

An engine's permissions know subjects, and a kind is the part of a subject that a delegation speaks
about. So of every policy only what it says of `.kind` counts here. Whatever else a policy asks is
the log's to judge; what it says of `.kind` in a way that subjects cannot express admits nothing.

A *kind filter* is `>` (every kind), `render.>` (every kind below `render`) or a kind itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core import subjects
from antiphon.core.ucan import covers
from antiphon.core.wallet import chains_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.control import Control
    from antiphon.core.ucan import Chain

EVERY_KIND: Final = ">"
READING: Final = ("/job/read", "/job/claim")
"""The right to claim a kind includes the right to read it."""
WORKING: Final = ("/job/claim", "/job/complete", "/job/cancel", "/job/schedule")
"""Whoever may call may write on its jobs' lanes, or it could not take a call back."""
CALLING: Final = ("/job/schedule", "/job/complete")
_ABOUT_ALL: Final = (".", ".[]")
_NO_END: Final = 2**63


class Scope(Struct, frozen=True, kw_only=True):
    """Kind filters for reading, for writing on lanes, and for announcing."""

    reads: tuple[str, ...] = ()
    works: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    until_s: int | None = None
    """When the first of the grants behind it ends, and it must be asked for again."""

    def may_read(self, kind: str) -> bool:
        """Whether jobs of this kind may be read."""
        return any(admits(one, kind) for one in self.reads)

    def may_work(self, kind: str) -> bool:
        """Whether the lanes of this kind may be written on."""
        return any(admits(one, kind) for one in self.works)


EVERYTHING: Final = Scope(reads=(EVERY_KIND,), works=(EVERY_KIND,), calls=(EVERY_KIND,))
NOTHING: Final = Scope()


def admits(kind_filter: str, kind: str) -> bool:
    """Whether a kind filter covers a kind."""
    if kind_filter == EVERY_KIND:
        return True
    if kind_filter.endswith(".>"):
        return kind.startswith(kind_filter[:-1])
    return kind == kind_filter


def narrower(scope: Scope, than: Scope) -> bool:
    """Whether `than` admits anything that `scope` does not."""
    pairs = ((than.reads, scope.reads), (than.works, scope.works), (than.calls, scope.calls))
    return any(
        not any(_within(one, other) for other in left) for before, left in pairs for one in before
    )


def filter_of(glob: str) -> str | None:
    """The kind filter that says the same as a `like` pattern; None if none does."""
    if glob == "*":
        return EVERY_KIND
    if glob.endswith(".*") and subjects.is_kind(glob[:-2]):
        return glob[:-1] + ">"
    return glob if subjects.is_kind(glob) else None


def scope_of(control: Control, did: str, now_s: int) -> Scope:
    """What a node may read and write now."""
    if did in control.quarantined and did != control.owner:
        return NOTHING
    if control.rules.authority == "open" or did == control.owner:
        return EVERYTHING
    grants = control.grants
    found: dict[tuple[str, ...], list[str]] = {READING: [], WORKING: [], CALLING: []}
    changes: list[int] = []
    for chain in _by_weight(chains_to(grants, control.owner, did, before=_NO_END)):
        is_lent = len(chain.links) > 1
        cids = tuple(link.cid for link in chain.links)
        revoked = grants.revoked(cids, before=_NO_END)
        if any(chain.may_revoke(by, cid) for cid, who in revoked.items() for by in who):
            continue
        if chain.expires is not None and chain.expires < now_s:
            continue
        if chain.not_before is not None and chain.not_before > now_s:
            if not is_lent:
                changes.append(chain.not_before)
            continue
        # What others lend may widen a scope and not shorten it, or they could end one at will.
        if (
            is_lent
            and any(found.values())
            and _ends_before(chain.expires, min(changes, default=None))
        ):
            continue
        kinds = _meet(kinds_of(policy.source) for _, policy in chain.policies)
        if chain.expires is not None:
            changes.append(chain.expires)
        for commands, filters in found.items():
            if any(covers(chain.command, one) for one in commands):
                filters.extend(kinds)
    return Scope(
        reads=_fewest(found[READING]),
        works=_fewest(found[WORKING]),
        calls=_fewest(found[CALLING]),
        until_s=min(changes, default=None),
    )


def _by_weight(chains: list[Chain]) -> list[Chain]:
    """What the owner granted itself first; then what lasts longest."""
    return sorted(
        chains,
        key=lambda chain: (
            len(chain.links) > 1,
            -(_NO_END if chain.expires is None else chain.expires),
        ),
    )


def _ends_before(end_s: int | None, other_s: int | None) -> bool:
    return end_s is not None and (other_s is None or end_s < other_s)


def kinds_of(statements: list[Any]) -> tuple[str, ...]:
    """The kind filters that a policy admits: all of its statements must hold."""
    return _meet(_kinds_of_one(one) for one in statements)


def _kinds_of_one(statement: Any) -> tuple[str, ...]:
    match statement:
        case ["and", list() as inner]:
            return kinds_of(inner)
        case ["or", list() as inner] if inner:
            return _fewest([kind for one in inner for kind in _kinds_of_one(one)])
        case ["==", ".kind", str() as kind]:
            return (kind,) if subjects.is_kind(kind) else ()
        case ["like", ".kind", str() as glob]:
            kind_filter = filter_of(glob)
            return () if kind_filter is None else (kind_filter,)
        case _:
            return () if _speaks_of_kind(statement) else (EVERY_KIND,)


def _speaks_of_kind(statement: Any) -> bool:
    """Whether a statement that subjects cannot express could be about the kind."""
    match statement:
        case [str(), str() as selector, _] if selector[:1] == ".":
            named = selector.startswith((".kind", '.["kind"', ".[")) or selector in _ABOUT_ALL
            return named or selector.startswith("..")
        case ["not", [str(), str(), _] as inner]:
            return _speaks_of_kind(inner)
        case _:
            return True


def _meet(each: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The kinds that every one of these admits."""
    left: tuple[str, ...] = (EVERY_KIND,)
    for filters in each:
        left = _fewest([both for a in left for b in filters if (both := _both(a, b))])
    return left


def _both(one: str, other: str) -> str:
    """The narrower of two filters, or nothing if they share no kind."""
    if _within(one, other):
        return one
    return other if _within(other, one) else ""


def _within(inner: str, outer: str) -> bool:
    if outer in (EVERY_KIND, inner):
        return True
    if inner == EVERY_KIND or not outer.endswith(".>"):
        return False
    return inner.startswith(outer[:-1])


def _fewest(filters: Iterable[str]) -> tuple[str, ...]:
    """The same kinds in as few filters as possible."""
    distinct = sorted(set(filters))
    return tuple(
        one
        for one in distinct
        if not any(one != other and _within(one, other) for other in distinct)
    )
