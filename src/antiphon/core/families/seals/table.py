"""What a seal does (spec §7.5).

A reader that does not see the whole log cannot know the root: its verdict on a seal that passes
all else is `unseen`, which is never sealed. So that both sorts of readers order the seals that
follow alike, the state moves with every seal that passes all but the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.families.seals.state import Sealed
from antiphon.core.family import UNSEEN_ROOT, At, Mark, Moved, Needs
from antiphon.core.record.verdict import Reason

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.seals.ops import MeshSeal, SealBody


def entitled(control: Control, _state: Sealed | None, op: MeshSeal, _at: At) -> Reason | bool:
    """The coordinator's office, and nothing else."""
    return op.author == control.coordinator or Reason.NOT_COORDINATOR


def step(state: Sealed | None, op: MeshSeal, at: At) -> Moved | Reason | Needs:
    """The seal in force afterwards; the reader's own mark is asked for last."""
    body = op.body
    if state is not None and body.upto <= state.upto:
        return Reason.STALE
    if body.upto >= at.seq or body.size > body.upto or body.state is not None:
        return Reason.SEAL
    own = at.reads.mark
    if own is None:
        return Needs(upto=body.upto)
    sealed = Sealed(at.seq, op.hlc, op.author, body.upto, at.commit_ms)
    if own == UNSEEN_ROOT:
        return Moved(Reason.UNSEEN, sealed)
    return Moved(Reason.OK if _matches(own, body) else Reason.SEAL, sealed)


def _matches(own: Mark, body: SealBody) -> bool:
    return own == Mark(body.size, body.root)
