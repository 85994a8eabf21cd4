"""What a writer of a document should put on the log now, given what it wants and what is there.

The table judges puts; this makes those that it accepts. A put that would be refused is not made at
all: its writer is told instead.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.core.families.memory.ops import Inline, MemoryBody, Stored, Strategy
from antiphon.core.families.memory.state import Document


class Wanted(Struct, frozen=True, kw_only=True):
    """A value for a document, before it is known what is there."""

    space: str
    key: str
    agent: str
    value: Inline | Stored | None
    """None: delete it."""
    base: int
    """The revision that the value was made from; 0: nothing was there, or it was deleted."""
    strategy: Strategy = "remote"
    resolves: tuple[str, ...] = ()


def put_body(document: Document | None, wanted: Wanted) -> MemoryBody | None:
    """The body of the put; None where the strategy, or what is there, leaves nothing to write."""
    revision = document.revision if document is not None else 0
    siblings = document.siblings if document is not None else ()
    is_gone = document is None or document.value is None
    base = revision if is_gone and not wanted.base else wanted.base
    is_behind = base != revision
    known = {one.op for one in siblings}
    if not known.issuperset(wanted.resolves):
        return None  # somebody else has resolved it
    if is_behind and wanted.strategy in ("remote", "merge"):
        return None
    is_deferred = is_behind and wanted.strategy == "defer"
    if is_deferred and wanted.resolves:
        return None
    if wanted.value is None and is_gone and not wanted.resolves and not is_deferred:
        return None
    keeps = () if is_deferred else tuple(one for one in siblings if one.op not in wanted.resolves)
    return MemoryBody(
        kind=wanted.space,
        key=wanted.key,
        agent=wanted.agent,
        value=wanted.value,
        base=base,
        found=revision if is_behind else None,
        strategy=wanted.strategy,
        resolves=wanted.resolves,
        keeps=keeps,
    )
