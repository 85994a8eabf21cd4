"""A sentence for each op about a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.core.families.memory.ops import MemoryPut


def sentence(op: MemoryPut) -> str:
    """What an op did, as the end of a sentence that begins with its author."""
    body = op.body
    by = f" as {body.agent}"
    if body.is_deferred:
        return f"deferred a value of {body.key!r}{by}, made from revision {body.base}"
    did = "deleted" if body.value is None else "wrote"
    over = f" over revision {body.found}" if body.is_behind else ""
    ended = len(body.resolves)
    resolved = f" and resolved {ended} conflict{'s' if ended > 1 else ''}" if ended else ""
    return f"{did} {body.key!r}{by}{over}{resolved}"
