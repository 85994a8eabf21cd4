"""Dependencies: which records an op may name, and whether they are on the log (spec §5).

Everyone who reads an op must reach the same verdict, but not everyone reads everything. So an op
may name control records and, if it is about something of a kind, records of its own kind that
every reader of the op may read too (decision 0014). Control records are at hand, since every node
follows them. The others have to be looked up. That is done last: a node that may not write an op
must not be able to make everyone read because of it.

A record below the newest archive counts only if its lane was not archived since: then it may be
purged, and a reader that comes later does not find it. So its lane is looked up too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core import lane_archive
from antiphon.core.family import At, Dep, Lane, Needs
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.record.branches import LaneKey
    from antiphon.core.record.op import Op


def fault(op: Op, at: At) -> Verdict | Needs | None:
    """Whether the op names a record that was not committed before it with exactly that id.

    Sequences that did not exist yet when the op was committed are never looked up: a later
    reader finds records there, and must not count them.
    """
    control_ids, found = at.control.op_ids, at.reads.records
    missing: list[int] = []
    lanes: list[tuple[LaneKey, int]] = []
    for seq, op_id in op.deps:
        if not 0 < seq < at.seq:
            return Verdict.MISSING_DEP
        if seq in control_ids:
            if control_ids[seq] != op_id:
                return Verdict.MISSING_DEP
        elif not at.key.kind:
            return Verdict.MISSING_DEP  # an op about the mesh may only name control records
        elif seq not in found:
            missing.append(seq)
        else:
            dep = found[seq]
            if dep is None or not _is_meant(dep, op, op_id, at.key.kind):
                return Verdict.MISSING_DEP
            is_old = seq < at.control.archive.seq and not at.reads.is_named
            if not is_old or dep.lane is None:
                continue
            if dep.lane not in at.reads.lanes:
                lanes.append((dep.lane, seq))
            elif _is_archived_since(at.reads.lanes[dep.lane], seq, at.control):
                return Verdict.MISSING_DEP
    if missing:
        return Needs(records=tuple(dict.fromkeys(missing)))
    return Needs(lanes=tuple(dict.fromkeys(lanes))) if lanes else None


def _is_archived_since(lane: Lane, seq: int, control: Control) -> bool:
    """Whether a lane was emptied behind one of its records."""
    now = lane_archive.behind(control, lane)
    return now.state is None or seq < now.floor


def _is_meant(dep: Dep, op: Op, op_id: str, kind: str) -> bool:
    """Whether it is that op, every reader of the naming op may read it, and it stays there."""
    if dep.op_id != op_id or dep.kind != kind or dep.is_cut:
        return False
    return not dep.read_by or set(op.BRANCH.read_by) <= set(dep.read_by)
