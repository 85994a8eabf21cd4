"""What an op may name as its reasons, and whether that is there (SPEC §5).

Everyone who reads an op must come to the same verdict, and not everyone reads everything. So from
protocol 2 on an op names control records, or records about jobs of its own kind: whoever reads
the op reads those (decision 0014).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import subjects

if TYPE_CHECKING:
    from antiphon.core.records import Entry

SIGHT_SINCE: Final = 2
"""From this protocol on, an op names only what its own readers can read."""


class Dep(Struct, frozen=True, gc=False):
    """What the log holds at a sequence that an op names."""

    op_id: str
    subject: str


NO_DEPS: Final[Mapping[int, Dep]] = {}


def are_present(protocol: int, entry: Entry, deps: Mapping[int, Dep]) -> bool:
    """Whether every record that the op names was committed before it, with that very id.

    The bound on sequences matters: a reader who comes later finds records at sequences that had
    not been given out yet when the op was committed, and must not count them.
    """
    named = entry.op.deps if entry.op is not None else ()
    for at, op_id in named:
        found = deps.get(at)
        if at >= entry.seq or found is None or found.op_id != op_id:
            return False
        if protocol >= SIGHT_SINCE and not _is_in_sight(entry.subject, found.subject):
            return False
    return True


def _is_in_sight(of: str, other: str) -> bool:
    """Whether whoever reads one subject reads the other."""
    mesh = of.split(".", 2)[1]
    if subjects.matches(subjects.all_control(mesh), other):
        return True
    here, there = subjects.lane_of(of), subjects.lane_of(other)
    return here is not None and there is not None and here[0] == there[0]
