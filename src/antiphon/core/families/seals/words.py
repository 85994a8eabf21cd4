"""A sentence for a seal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.core.families.seals.ops import MeshSeal


def sentence(op: MeshSeal) -> str:
    """What a seal did, as the end of a sentence that begins with its author."""
    return f"sealed the log up to record {op.body.upto}"
