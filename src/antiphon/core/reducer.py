"""The reducer: the one function that gives the verdict on a committed record (spec §5).

`judge(control, lane, record, reads)` is a pure function of a small read-set: the control state at
the record's place, its lane so far, and what the op itself names. A full node, a node that sees
some kinds, a light worker that read one lane and someone who checks a file offline call it with
the same arguments, so they reach the same verdict. Its cost does not depend on the mesh's size.

The checks that all ops share are made here, each once and in a fixed order. The order is part of
the protocol, since it decides which reason is recorded:

    bytes, genesis, time, predecessor, archive, quarantine, authority, deps, order, then the
    family's own

An op that follows from somebody else's is judged by that author's authority too: the family says
whose, and the same check is made for it.

If a verdict needs more than is at hand, `judge` returns what it `Needs`, after every cheaper check
has passed: a node that may not write an op must not be able to make everyone read because of it.
`judge` changes nothing; what a control op changes is in the outcome, and `ControlHistory.take`
applies it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.core import lane_archive, read_set
from antiphon.core.authority import chain_check
from antiphon.core.authority.control import Change, Control, time_fault
from antiphon.core.family import NOTHING, At, Lane, Moved, Needs, Reads
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import Family
    from antiphon.core.opened_record import OpenedRecord
    from antiphon.core.record.op import Op


class Outcome(Struct, frozen=True, gc=False):
    """The verdict on a record, the lane after it, and what it changes in the control state."""

    verdict: Verdict
    lane: Lane
    change: Change | None = None

    @property
    def changed(self) -> bool:
        """Whether the record took effect."""
        return self.verdict is Verdict.OK


def judge(
    control: Control | None, lane: Lane, record: OpenedRecord, reads: Reads = NOTHING
) -> Outcome | Needs:
    """Judge one record by the control state at its place, which is None before genesis."""
    place, op, family = record.place, record.op, record.family
    if place is None:
        return Outcome(record.fault or Verdict.SUBJECT, lane)
    if control is not None and control.archive.seq:
        lane = lane_archive.behind(control, lane)
    tails, slot, state = lane.tails, place.slot, lane.state
    moved = (*tails[:slot], record.seq, *tails[slot + 1 :])
    if op is None or family is None or record.since > 1:
        fault = record.fault_under(control.rules.protocol if control is not None else 1)
        if fault is not None or op is None or family is None:
            return _unchanged(fault or Verdict.MALFORMED, lane, moved, state)
    result: Any
    if control is None:
        result = family.genesis(op, record.seq, record.commit_ms)
    elif not op.mesh:  # a mesh is created once
        result = Verdict.GENESIS
    else:
        at = At(record.seq, record.commit_ms, control, place.key, reads, family, record.is_verified)
        below = lane_archive.floor_of(family, control, lane)
        state = family.standing(control, state, record.seq)
        is_next = op.prev == tails[slot] or (tails[slot] < below and op.prev < below)
        result = _fault(family, state, op, at, is_next=is_next)
        if result is None and op.deps:
            result = read_set.fault(op, at)
        if result is None:
            result = _order_fault(family, control, state, op) or _stepped(family, state, op, at)
    if isinstance(result, Verdict):
        return _unchanged(result, lane, moved, state)
    if isinstance(result, Needs):
        return result
    floor = control.archive.seq if control is not None and lane.state is None else lane.floor
    time_ms = max(op.hlc[0], record.commit_ms)
    if isinstance(result, Moved):
        after = type(lane)(moved, result.state, floor, time_ms)
        return Outcome(result.verdict, after, result.change)
    return Outcome(Verdict.OK, type(lane)(moved, result, floor, time_ms))


def _unchanged(verdict: Verdict, lane: Lane, moved: tuple[int, ...], state: Any) -> Outcome:
    """The outcome of a record that took no effect; the state may be another without it, too."""
    return Outcome(verdict, type(lane)(moved, state, lane.floor, lane.time_ms))


def settled(outcome: Outcome | Needs) -> Outcome:
    """The outcome after its needs were read: each verdict has at most one read."""
    if isinstance(outcome, Needs):
        raise TypeError(f"a verdict asked for a second read: {outcome}")
    return outcome


def _fault(family: Family, state: Any, op: Op, at: At, *, is_next: bool) -> Verdict | None:
    """The first check that fails of those that need no further reads."""
    control = at.control
    fault = time_fault(control.rules, at.commit_ms, op.hlc)
    if fault is not None:
        return fault
    if not is_next:
        return Verdict.PREV
    if state is None and control.archive.seq and lane_archive.is_too_old(family, control, op):
        return Verdict.ARCHIVED
    return author_fault(family, state, op, at)


def author_fault(family: Family, state: Any, op: Op, at: At) -> Verdict | None:
    """Why the author may not write this op here; also used for nodes that may claim next.

    Under `authority: open` every node that the engine admits holds every command, except those
    about the mesh itself. Under `authority: chain`, the default, an op needs a chain of
    delegations, unless its author is the owner or the family allows it for another reason.
    """
    control = at.control
    if control.is_quarantined(op.author):
        return Verdict.QUARANTINED
    if op.COMMAND and (control.rules.authority == "open" or op.author == control.owner):
        return None
    by_right = family.entitled(control, state, op, at)
    if by_right is True:
        return None
    if isinstance(by_right, Verdict):
        return by_right
    return chain_check.fault(control, op, seq=at.seq, commit_ms=at.commit_ms)


def _stepped(family: Family, state: Any, op: Op, at: At) -> Any:
    """What the family says, if whoever the op follows from may write it too."""
    result = family.step(state, op, at)
    if isinstance(result, Moved) and result.on_behalf is not None:
        return author_fault(family, state, result.on_behalf, at) or result
    return result


def _order_fault(family: Family, control: Control, state: Any, op: Op) -> Verdict | None:
    """The verdict if an op is not newer than the one it follows."""
    last = family.last(control, state, op)
    if last is None or op.hlc > last[0]:
        return None
    is_double = op.hlc == last[0] and op.author == last[1]
    return Verdict.EQUIVOCATION if is_double else Verdict.STALE
