"""Whether a completion proves what it says (spec §9).

Whether a completion is accepted is decided by `table._complete`: fence, claimer, this, then the
outputs that are in the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.proof import statement
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from antiphon.core.families.jobs.ops import CompleteBody
    from antiphon.core.family import At


def is_proved(body: CompleteBody, author: str, at: At) -> bool:
    """Whether a completion carries the proof of exactly what it says, by its own author.

    A reader that has just signed the proof itself does not verify it again.
    """
    envelope = body.proof
    if envelope is None:
        return False
    try:
        found = statement.open_proof(envelope)
    except Malformed:
        return False
    said = found.predicate
    return (
        said.mesh == at.control.mesh
        and said.kind == body.kind
        and said.job == said.manifest.blake3 == body.job
        and said.fence == body.fence
        and said.worker == author
        and said.status == body.status
        and said.exit == body.exit
        and found.subject == statement.subjects_of(body.job, body.outputs)
        and (at.is_own or statement.is_signed_by(envelope, author))
    )
