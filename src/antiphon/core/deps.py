"""What an op may name as its reasons, and whether that is there (spec §5).

Everyone who reads an op must come to the same verdict, and not everyone reads everything. So an op
names control records or, if it is about a job, records about jobs of its own kind: whoever reads
the op reads those (decision 0014). Control records are at hand, since everybody follows control.
The others have to be looked up, and that is done last: whoever may not author an op must not make
everybody read by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.core import subjects

if TYPE_CHECKING:
    from antiphon.core.records import Entry


class Dep(Struct, frozen=True, gc=False):
    """What the log holds at a sequence that an op names."""

    op_id: str
    subject: str


NO_DEPS: Final[Mapping[int, Dep]] = {}


def to_look_up(entry: Entry, control_ids: Mapping[int, str]) -> tuple[int, ...]:
    """The sequences that an op names and that hold no control record; each once.

    Sequences that had not been given out yet when the op was committed are none of them: a
    reader who comes later finds records there, and must not count them.
    """
    named = entry.op.deps if entry.op is not None else ()
    return tuple(
        dict.fromkeys(at for at, _ in named if 0 < at < entry.seq and at not in control_ids)
    )


def are_present(
    entry: Entry, control_ids: Mapping[int, str], deps: Mapping[int, Dep] = NO_DEPS
) -> bool:
    """Whether every record that the op names was committed before it, with that very id.

    `control_ids` are the ids of all control records by their sequences, and `deps` is what was
    found at the sequences `to_look_up`; control ops name none of those.
    """
    for at, op_id in entry.op.deps if entry.op is not None else ():
        if at >= entry.seq:
            return False
        if at in control_ids:
            if control_ids[at] != op_id:
                return False
            continue
        found = deps.get(at)
        if found is None or found.op_id != op_id:
            return False
        if not _is_in_sight(entry.subject, found.subject):
            return False
    return True


def _is_in_sight(of: str, other: str) -> bool:
    """Whether whoever reads one lane reads the other."""
    here, there = subjects.lane_of(of), subjects.lane_of(other)
    return here is not None and there is not None and here[0] == there[0]
