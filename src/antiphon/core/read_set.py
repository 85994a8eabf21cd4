"""Dependencies: which records an op may name, and whether they are on the log (spec §5).

Everyone who reads an op must reach the same verdict, but not everyone reads everything. So an op
may name control records and, if it is about something of a kind, records of its own kind that
every reader of the op may read too (decision 0014). Control records are at hand, since every node
follows them. The others have to be looked up. That is done last: a node that may not write an op
must not be able to make everyone read because of it.

A record on a lane that can be archived counts only while it is younger than the newest archive's
time: lanes with such a record are not purged, and neither is one that a lane names which is still
there. So a verdict never depends on bytes that may be gone, and takes no look at the other lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.family import At, Dep, Needs
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.record.op import Op


def fault(op: Op, at: At) -> Verdict | Needs | None:
    """Whether the op names a record that was not committed before it with exactly that id.

    Sequences that did not exist yet when the op was committed are never looked up: a later
    reader finds records there, and must not count them.
    """
    control_ids, found = at.control.op_ids, at.reads.records
    missing: list[int] = []
    checked = at.family.deps_checked(op) if at.family is not None else 0
    for index, (seq, op_id) in enumerate(op.deps):
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
            if index >= checked and dep.may_leave_ms <= at.control.archive.before_ms:
                return Verdict.MISSING_DEP
    return Needs(records=tuple(dict.fromkeys(missing))) if missing else None


def _is_meant(dep: Dep, op: Op, op_id: str, kind: str) -> bool:
    """Whether it is that op, every reader of the naming op may read it, and it stays there."""
    if dep.op_id != op_id or dep.kind != kind or dep.is_cut:
        return False
    return not dep.read_by or set(op.BRANCH.read_by) <= set(dep.read_by)
