"""What a seal does (spec §7.5).

A reader that does not read the whole log cannot know the root: its verdict on a seal that passes
every other check is `unseen`, which is never sealed. The state moves with every seal that passes
all checks but the root, so that both sorts of readers order the following seals alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.seals.state import Sealed
from antiphon.core.family import UNSEEN_ROOT, At, Mark, Moved, Needs
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.seals.ops import MeshSeal, SealBody


def entitled(control: Control, _state: Sealed | None, op: MeshSeal, _at: At) -> Verdict | bool:
    """Only the coordinator may seal, whatever its delegations."""
    return op.author == control.coordinator or Verdict.NOT_COORDINATOR


def step(state: Sealed | None, op: MeshSeal, at: At) -> Moved | Verdict | Needs:
    """The newest seal after this op; the reader's own root is requested last."""
    body = op.body
    if state is not None and body.upto <= state.upto:
        return Verdict.STALE
    if body.upto >= at.seq or body.size > body.upto:
        return Verdict.SEAL
    own = at.reads.mark
    if own is None:
        return Needs(upto=body.upto)
    sealed = Sealed(at.seq, op.hlc, op.author, body.upto, at.commit_ms, body.state)
    if own == UNSEEN_ROOT:
        return Moved(Verdict.UNSEEN, sealed)
    return Moved(Verdict.OK if _matches(own, body) else Verdict.SEAL, sealed)


def _matches(own: Mark, body: SealBody) -> bool:
    return own == Mark(body.size, body.root)
