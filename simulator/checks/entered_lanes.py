"""Entering a lane is reading it: checked at every record of a family that has `enter` (spec §7.5).

The state that an accepted op gives alone must be the state that a full reader has after it. From
there on both judge the same records by the same state, so it is enough to check each record where a
reader may enter, and that a state names no other place to enter at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.branches import LaneKey
    from antiphon.core.reducer import Outcome


class EnteredLanes:
    """Where each lane of one mesh can be entered."""

    def __init__(self) -> None:
        """No record was judged."""
        self._places: dict[LaneKey, set[int]] = {}

    def faults(self, opened: OpenedRecord, outcome: Outcome) -> Iterator[str]:
        """What is wrong with entering the lane after this record."""
        family, place, state = opened.family, opened.place, outcome.lane.state
        if family is None or family.enter is None or place is None or state is None:
            return
        places = self._places.setdefault(place.key, set())
        if outcome.changed:
            entered = family.enter(opened.op, opened.seq, opened.op_id)
            if entered is not None:
                places.add(opened.seq)
                if entered != state:
                    yield f"entered it is {entered}, read it is {state}"
        named = family.entry(state)
        if named and named not in places:
            yield f"its state names record {named}, where it cannot be entered"
