"""What a scope comes to on a mesh's log: the subjects that a member is shown, hears and writes on.

Pure, and the only place where commands and kinds become subjects: server permissions, what the
gate answers and what a member asks for all follow from here, for any family. Filters are relative
to the mesh's root; `>` alone is every record.

A kind filter becomes a filter on the subjects of a branch, which end in one token more, the name:
`render.>` is `render.*.>` (never the kind `render` itself) and `render.video` is `render.video.*`
(never a kind below it). Where a branch has no kinds, only whoever holds a command for every kind
holds it there: a policy that speaks of the kind admits no op that has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.scope import EVERY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antiphon.core.authority.scope import Scope
    from antiphon.core.record.branches import Branch

WHOLE: Final = (">",)
"""What is shown to whoever sees every record."""
_CONTROL: Final = "ctl.>"


class SubjectRights(Struct, frozen=True):
    """What one member may do on one log, as filters relative to its root."""

    shown: tuple[str, ...]
    """What it may read; no two of them overlap. `WHOLE` if that is everything."""
    heard: tuple[str, ...]
    """What of that it hears as soon as it is committed."""
    unheard: tuple[str, ...]
    """What it must not hear, whatever wildcards it listens with."""
    written: tuple[str, ...]
    """Where it may write."""
    relayed: tuple[str, ...]
    """Where the gate writes for it."""


def rights_on(branches: Sequence[Branch], scope: Scope) -> SubjectRights:
    """What a scope admits on a log with these branches."""
    shown, heard, unheard, written = [_CONTROL], [_CONTROL], list[str](), list[str]()
    is_whole = True
    for branch in branches:
        if branch.written_by and not branch.via_gate:
            written += _filters(branch, scope.of(*branch.written_by))
        if branch.shape == "control":
            continue  # everybody follows all of it
        kinds = scope.of(*branch.read_by) if branch.read_by else (EVERY_KIND,)
        is_whole &= EVERY_KIND in kinds
        audible, bounded = hearing(kinds)
        shown += _filters(branch, kinds)
        heard += _filters(branch, audible)
        unheard += _filters(branch, [f"{kind}.>" for kind in bounded])
    return SubjectRights(
        WHOLE if is_whole else tuple(shown),
        tuple(heard),
        tuple(unheard),
        tuple(written),
        tuple(one for each in branches if each.via_gate for one in _filters(each, (EVERY_KIND,))),
    )


def below(kind_filter: str) -> str:
    """What follows the stem of a branch for the kinds of a filter: the name comes last."""
    if kind_filter == EVERY_KIND:
        return kind_filter
    if kind_filter.endswith(".>"):
        return f"{kind_filter[:-1]}*.>"
    return f"{kind_filter}.*"


def hearing(kinds: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kind filters that may be heard live, and the kinds below which nothing may be.

    To a server a listener's wildcard is an ordinary token while it looks at permissions: whoever
    may listen on `render.video.*` may listen on `render.video.>`. So hearing nothing below a kind
    that is named exactly takes a denial, which would reach what is in scope below it. Such a kind
    beside a part of what lies below it is not heard live; the gate still shows it.
    """
    audible: list[str] = []
    bounded: list[str] = []
    for one in kinds:
        if one.endswith(EVERY_KIND) or f"{one}.>" in kinds:
            audible.append(one)
        elif not any(other.startswith(f"{one}.") for other in kinds):
            audible.append(one)
            bounded.append(one)
    return audible, bounded


def exceeds(filters: Iterable[str], others: Iterable[str]) -> bool:
    """Whether any of these admits a subject that no single one of those does.

    As many look-ups as these have tokens, whatever others there are. A filter that `rights_on`
    would not write may count as more than it is, never as less.
    """
    known = set(others)
    return any(one not in known and known.isdisjoint(_wider(one)) for one in filters)


def _wider(one: str) -> Iterator[str]:
    """The filters of the same beginning that cover all of a filter."""
    tokens = one.split(".")
    for length in range(len(tokens)):
        start = "".join(f"{token}." for token in tokens[:length])
        yield f"{start}>"
        if length + 1 < len(tokens):
            yield f"{start}*.>"


def _filters(branch: Branch, kinds: Iterable[str]) -> list[str]:
    """The subjects of a branch for some kinds."""
    if branch.shape == "kind":
        return [f"{branch.pattern}.{below(one)}" for one in kinds]
    if EVERY_KIND not in kinds:
        return []
    # A control op may have one subject, or one for each thing that it is about.
    return [branch.stem, f"{branch.stem}.>"] if branch.shape == "control" else [branch.stem]
