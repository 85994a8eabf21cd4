"""What an op may name as its reasons, and whether that is there (spec §5).

Everyone who reads an op must come to the same verdict, and not everyone reads everything. So an op
names control records or, if it is about something of a kind, records of its own kind that whoever
reads the op may read as well (decision 0014). Control records are at hand, since everybody follows
control. The others have to be looked up, and that is done last: whoever may not author an op must
not make everybody read by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.family import At, Dep, Needs
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.record.op import Op


def fault(op: Op, at: At) -> Verdict | Needs | None:
    """Whether a record that the op names was not committed before it, with that very id.

    Sequences that had not been given out yet when the op was committed are never looked up: a
    reader who comes later finds records there, and must not count them.
    """
    control_ids, found = at.control.op_ids, at.reads.records
    missing: list[int] = []
    for seq, op_id in op.deps:
        if not 0 < seq < at.seq:
            return Verdict.MISSING_DEP
        if seq in control_ids:
            if control_ids[seq] != op_id:
                return Verdict.MISSING_DEP
        elif not at.key.kind:
            return Verdict.MISSING_DEP  # what is about the mesh names control alone
        elif seq not in found:
            missing.append(seq)
        elif not _is_meant(found[seq], op, op_id, at.key.kind):
            return Verdict.MISSING_DEP
    return Needs(records=tuple(dict.fromkeys(missing))) if missing else None


def _is_meant(dep: Dep | None, op: Op, op_id: str, kind: str) -> bool:
    """Whether it is that op, and whoever reads the one that names it may read it."""
    if dep is None or dep.op_id != op_id or dep.kind != kind:
        return False
    return not dep.read_by or set(op.BRANCH.read_by) <= set(dep.read_by)
