"""Which requests purge the lanes that an archive emptied (spec §7.5).

A request costs about as much as a write, so many lanes of a kind go with one, by wildcard: all
records below the oldest lane that stays. A lane that lies on both sides of that line goes alone
and before, with all its subjects in one request: nobody ever finds half of a lane. Half of one
could show a second schedule, which was refused, without the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from antiphon.core.record import subjects

if TYPE_CHECKING:
    from antiphon.core.family import Family

TOGETHER: Final = 4
"""From how many lanes on a wildcard is worth a request that walks over all subjects of a kind."""


class OldLane(NamedTuple):
    """A lane with records below an archive."""

    name: str
    first: int
    last: int
    """Its first and last record below the archive."""
    is_gone: bool
    """Whether all of these may go: it is archived, and no lane names it that is still there."""


class Purge(NamedTuple):
    """One request: everything that a filter selects, up to a sequence."""

    subject: str
    upto: int
    lanes: tuple[str, ...]


def purges(
    mesh: str,
    family: Family,
    kind: str,
    lanes: Iterable[OldLane],
    *,
    below: int,
    line: int | None = None,
) -> list[Purge]:
    """The requests for one kind, in order; `lanes` are all that begin there, or before `line`.

    `line` is where one begins that stays, or of which nothing is known here.
    """
    found = sorted(lanes, key=lambda lane: lane.first)
    line = oldest_kept(found, below if line is None else line)
    going = [one for one in found if one.is_gone]
    together = [one.name for one in going if one.last < line]
    if len(together) < TOGETHER:
        together = []
    names = set(together)
    alone = [one for one in going if one.name not in names]
    steps = [
        Purge(subject, below - 1, (one.name,))
        for one in alone
        for subject in lane_filters(mesh, family, kind, one.name)
    ]
    if together:
        steps += [
            Purge(subject, line - 1, tuple(together))
            for subject in lane_filters(mesh, family, kind, "*")
        ]
    return steps


def oldest_kept(lanes: Iterable[OldLane], line: int) -> int:
    """Where the oldest lane begins that stays; `line` if none begins before it."""
    return min([line, *(one.first for one in lanes if not one.is_gone)])


def lane_filters(mesh: str, family: Family, kind: str, name: str) -> list[str]:
    """What selects all subjects of a lane: one filter, since they share a stem."""
    root = subjects.root(mesh)
    patterns = dict.fromkeys(branch.pattern for branch in family.branches)
    return [f"{root}.{pattern}.{kind}.{name}" for pattern in patterns]
