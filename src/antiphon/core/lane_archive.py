"""Which lanes an archive empties, and what an op may name on an empty one (spec §7.5).

A lane is archived at the place S of an archive if it had ended there, and its last accepted record
is older than the archive's time for its class by more than twice the greatest drift so far. One
that accepted nothing is archived by every archive. From S on it is empty: nothing that was on it
counts, and its bytes may be purged at any time. So no verdict behind S may depend on them:

- On an empty lane, a subject without a record behind the newest archive may be named by 0 or by
  any sequence below that archive. Who finds the bytes names them, who does not finds nothing.
- The first op on it must be newer than the archive's time, or it is `archived`: everything that
  was on the lane is older, so nothing of it comes back.

Lanes are not touched when an archive comes. Whoever judges the next record on a lane, or asks for
its state, passes it through `behind` first.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, TypeVar

from antiphon.core.family import Lane

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.family import Family
    from antiphon.core.record.op import Op

L = TypeVar("L", bound=Lane)


def is_archived(control: Control, lane: Lane) -> bool:
    """Whether the archive with which this control state begins empties a lane, as it is there."""
    if lane.state is None:
        return True
    archive, over = control.archive, lane.over(control)
    if over is None:
        return False
    limit_ms = archive.limit_ms(is_asked_again=over.is_asked_again)
    return over.time_ms + 2 * archive.drift_ms < limit_ms


def behind(control: Control, lane: L) -> L:
    """A lane at a place behind its last record, by the control state there: empty, or as it was.

    Its tails stay: who writes next names the last record that is there.
    """
    newest, moved = control.archive.seq, max(lane.tails)
    if newest <= moved or lane.state is None:
        return lane
    places = control.archives
    first = bisect_right(places, moved, key=_place)
    upto = bisect_right(places, newest, key=_place)
    is_gone = any(is_archived(at, lane) for at in places[first:upto])
    return type(lane)(lane.tails) if is_gone else lane


def _place(control: Control) -> int:
    return control.archive.seq


def floor_of(family: Family, control: Control, lane: Lane) -> int:
    """Below which sequence it does not matter which one an op names as `prev`; 0: it matters."""
    if family.is_asked_again is None:
        return 0
    return control.archive.seq if lane.state is None else lane.floor


def is_too_old(family: Family, control: Control, op: Op) -> bool:
    """Whether an op that would be the first on an empty lane may have been on it before."""
    if family.is_asked_again is None:
        return False
    limit_ms = control.archive.limit_ms(is_asked_again=family.is_asked_again(op))
    return op.hlc[0] <= limit_ms
