"""Turns by party: which rows a list has that is too short for everybody's (decision 0093).

A list that takes the first rows that it finds belongs to whoever writes most. So parties take
turns, each with its own rows in their order, until the list is full: ten thousand rows of one party
leave the single row of another where it is.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

T = TypeVar("T")


def in_turns(parties: Iterable[Iterable[T]], limit: int) -> list[T]:
    """At most `limit` rows: one of each party, then another of each that has more, and so on.

    No more is read of a party than it has turns.
    """
    ahead, found = deque(map(iter, parties)), list[T]()
    while ahead and len(found) < limit:
        rows = ahead.popleft()
        for row in islice(rows, 1):
            found.append(row)
            ahead.append(rows)
    return found


def by_party(rows: Iterable[T], party: Callable[[T], Hashable]) -> list[list[T]]:
    """The rows of each party, in their order; whose first row comes first is first."""
    found: dict[Hashable, list[T]] = {}
    for row in rows:
        found.setdefault(party(row), []).append(row)
    return list(found.values())


def shared(rows: Sequence[T], party: Callable[[T], Hashable], limit: int) -> list[T]:
    """At most `limit` of these rows when parties take turns, in the order that they are in."""
    if len(rows) <= limit:
        return list(rows)
    places = in_turns(by_party(range(len(rows)), lambda place: party(rows[place])), limit)
    return [rows[place] for place in sorted(places)]
