"""Who may have a blob: whoever may read a job whose accepted records name it.

A member must not get a blob by its own word, or it could have any by calling or completing a job
of its own with that digest in it. So it matters who wrote the record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from antiphon.core import ops
from antiphon.core.authority import stands_for
from antiphon.core.manifest import BlobInput
from antiphon.core.reasons import Reason

if TYPE_CHECKING:
    from antiphon.runtime.peer import Peer

Vouching = Literal["others", "own", "nobody"]


class BlobRights:
    """Looks at lanes for whoever keeps the gate."""

    def __init__(self, peer: Peer, node_of: Callable[[str], str]) -> None:
        """`node_of` gives the machine behind an engine user; empty if there is none."""
        self._peer = peer
        self._node_of = node_of

    async def vouches(self, user: str, kind: str, job: str, digest: str) -> Vouching:
        """Whose accepted records on a lane name the blob, as seen from this user."""
        node = self._node_of(user)
        if not node or not kind or not job:
            return "nobody"
        view = await self._peer.read_lane(kind, job)
        found: Vouching = "nobody"
        for judged in view.history:
            op, seq = judged.entry.op, judged.entry.seq
            if judged.verdict is not Reason.OK or not names(op, digest):
                continue
            control = self._peer.history.at(seq, judged.entry.commit_ms)
            is_own = (
                control is not None
                and isinstance(op, ops.JOB_TYPES)
                and stands_for(control, op, seq, node)
            )
            if not is_own:
                return "others"
            found = "own"
        return found


def names(op: ops.AnyOp | None, digest: str) -> bool:
    """Whether an op says that its job reads, or wrote, this content."""
    if isinstance(op, ops.JobSchedule):
        given = op.body.manifest.inputs
        inputs = () if given is UNSET else given
        return any(isinstance(one, BlobInput) and one.hash == digest for one in inputs)
    if isinstance(op, ops.JobComplete):
        return any(output.hash == digest for output in op.body.outputs)
    return False
