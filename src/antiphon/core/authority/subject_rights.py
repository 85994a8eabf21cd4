"""A scope as subjects on a mesh's log: what a member may read, hear and write.

This is the only place where commands and kinds become subjects. Server permissions, the gate's
answers and a member's requests all follow from it, for every family. Filters are relative to the
mesh's root; `>` alone is every record.

A kind filter becomes a filter on the subjects of a branch, which end in one token more, the name:
`render.>` is `render.*.>` (never the kind `render` itself) and `render.video` is `render.video.*`
(never a kind below it). On a branch without kinds, only members with a command for every kind have
it: a policy about the kind admits no op without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core.authority.scope import EVERY_KIND
from antiphon.core.ucan import TOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from antiphon.core.authority.scope import Scope
    from antiphon.core.record.branches import Branch

WHOLE: Final = (">",)
"""The filter of a member that may read every record."""
_CONTROL: Final = "ctl.>"


class SubjectRights(Struct, frozen=True):
    """What one member may do on one log, as filters relative to its root."""

    shown: tuple[str, ...]
    """What it may read; no two filters overlap. `WHOLE` if that is everything."""
    heard: tuple[str, ...]
    """What of that it may subscribe to live."""
    unheard: tuple[str, ...]
    """What it must not receive live, whatever wildcards it subscribes with."""
    written: tuple[str, ...]
    """Where it may write."""
    relayed: tuple[str, ...]
    """Where it may write through the gate."""


def rights_on(branches: Sequence[Branch], scope: Scope) -> SubjectRights:
    """What a scope admits on a log with these branches."""
    shown, heard, unheard, written = [_CONTROL], [_CONTROL], list[str](), list[str]()
    is_whole = True
    for branch in branches:
        if branch.written_by and not branch.via_gate:
            written += _written(branch, scope.of(*branch.written_by))
        if branch.shape == "control":
            continue  # every member follows all of it
        kinds = scope.of(*branch.read_by) if branch.read_by else (EVERY_KIND,)
        is_whole &= EVERY_KIND in kinds
        audible, bounded = hearing(kinds)
        shown += _filters(branch, kinds)
        heard += _filters(branch, audible)
        unheard += _filters(branch, [f"{kind}.>" for kind in bounded])
    return SubjectRights(
        WHOLE if is_whole else tuple(dict.fromkeys(shown)),
        tuple(dict.fromkeys(heard)),
        tuple(dict.fromkeys(unheard)),
        tuple(written),
        tuple(one for each in branches if each.via_gate for one in _filters(each, (EVERY_KIND,))),
    )


def reading_of(branches: Sequence[Branch], subject: str) -> tuple[str, str]:
    """The command that a member needs to read a subject, and its kind, as far as it has one."""
    _, _, stem, *rest = [*subject.split("."), "", ""]
    found = next((one for one in branches if one.stem == stem and one.shape == "kind"), None)
    if found is None or not found.read_by:
        return TOP, ""
    tokens = [one for one in rest if one][bool(found.variants) : -1]
    return found.read_by[0], ".".join(tokens)


def below(kind_filter: str) -> str:
    """The rest of a subject filter after the stem, for a kind filter: the name comes last."""
    if kind_filter == EVERY_KIND:
        return kind_filter
    if kind_filter.endswith(".>"):
        return f"{kind_filter[:-1]}*.>"
    return f"{kind_filter}.*"


def kinds_shown(branch: Branch, shown: Iterable[str]) -> tuple[str, ...]:
    """The kinds of a branch that filters for reading admit, as kind filters."""
    found, start = list[str](), f"{branch.pattern}."
    for one in shown:
        if one in {*WHOLE, f"{start}>"}:
            return (EVERY_KIND,)
        rest = one.removeprefix(start)
        if rest != one:
            found.append(f"{rest[:-4]}.>" if rest.endswith(".*.>") else rest.removesuffix(".*"))
    return tuple(dict.fromkeys(found))


def hearing(kinds: Sequence[str]) -> tuple[list[str], list[str]]:
    """The kind filters that may be received live, and the kinds below which nothing may be.

    When a server checks permissions, a wildcard in a subscription is an ordinary token: a user
    that may subscribe to `render.video.*` may subscribe to `render.video.>`. So an exact kind
    needs a denial for everything below it, which would also deny kinds below it that are in
    scope. Such a kind is not received live; the gate still shows it.
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

    As many look-ups as these have tokens, however many others there are. A filter that
    `rights_on` would not write may be overestimated, never underestimated.
    """
    known = set(others)
    return any(one not in known and known.isdisjoint(_wider(one)) for one in filters)


def _wider(one: str) -> Iterator[str]:
    """The wider filters with the same beginning that cover a filter."""
    tokens = one.split(".")
    for length in range(len(tokens)):
        start = "".join(f"{token}." for token in tokens[:length])
        yield f"{start}>"
        if length + 1 < len(tokens):
            yield f"{start}*.>"


def _written(branch: Branch, kinds: Iterable[str]) -> list[str]:
    """The subjects of a branch for some kinds, and of no other that shares its stem."""
    if branch.shape != "kind":
        return _filters(branch, kinds)
    return [f"{stem}.{below(one)}" for one in kinds for stem in branch.stems]


def _filters(branch: Branch, kinds: Iterable[str]) -> list[str]:
    """The subjects of a branch, and of those that share its stem, for some kinds."""
    if branch.shape == "kind":
        return [f"{branch.pattern}.{below(one)}" for one in kinds]
    if EVERY_KIND not in kinds:
        return []
    # A control branch has one subject, or one for each thing that its ops are about.
    return [branch.stem, f"{branch.stem}.>"] if branch.shape == "control" else [branch.stem]
