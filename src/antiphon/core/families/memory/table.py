"""What an op does to a document (spec §10).

| its base is | `remote`, `merge` | `local` | `defer` |
|---|---|---|---|
| the present revision | written | written | written |
| an older one, and its author says so | `base` | written over | a sibling |
| an older one, and its author did not find the present one | `base` | `base` | `base` |

The last row is why no update is lost by mistake: even who writes over a revision names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.core.authority.parties import whose
from antiphon.core.families.memory.ops import MAX_SIBLINGS, MemoryBody, MemoryPut, Sibling, Stored
from antiphon.core.families.memory.state import Document
from antiphon.core.record import codec
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import At


def step(document: Document | None, op: MemoryPut, at: At) -> Document | Verdict:
    """The document after an op, or the verdict if nothing changes."""
    body = op.body
    revision, siblings = (document.revision, document.siblings) if document else (0, ())
    if not _fits(body, revision):
        return Verdict.BASE
    if body.is_deferred:
        return _deferred(document, op, at)
    if body.keeps != _left(siblings, body.resolves):
        return Verdict.SIBLINGS
    is_gone = document is None or document.value is None
    if body.value is None and is_gone and not body.resolves:
        return Verdict.ALREADY
    return _written(op, at.seq, digest(codec.encode(op)))


def _fits(body: MemoryBody, revision: int) -> bool:
    """Whether it found the present revision, and may follow it by its base or its strategy."""
    found = body.base if body.found is None else body.found
    return found == revision and (not body.is_behind or body.strategy in ("local", "defer"))


def _left(siblings: tuple[Sibling, ...], resolved: tuple[str, ...]) -> tuple[Sibling, ...] | None:
    """The siblings that stay; None if one that should be resolved is not there."""
    left = tuple(one for one in siblings if one.op not in resolved)
    return left if len(siblings) - len(left) == len(resolved) else None


def _deferred(document: Document | None, op: MemoryPut, at: At) -> Document | Verdict:
    body, op_id = op.body, digest(codec.encode(op))
    if body.resolves or body.keeps:
        return Verdict.SIBLINGS
    siblings = document.siblings if document is not None else ()
    if len(siblings) >= MAX_SIBLINGS:
        return Verdict.UNRESOLVED
    stored = body.value.hash if isinstance(body.value, Stored) else None
    added = (*siblings, Sibling(op=op_id, seq=at.seq, hash=stored))
    if document is None:
        document = Document(
            key=body.key,
            revision=0,
            value=None,
            op_id="",
            author="",
            agent="",
            written=(0, 0),
            hlc=op.hlc,
            hlc_author=op.author,
            whose=whose(op.auth, op.author),
        )
    return replace(
        document, siblings=added, hlc=op.hlc, hlc_author=op.author, whose=whose(op.auth, op.author)
    )


def enter(op: MemoryPut, seq: int, op_id: str) -> Document | None:
    """The document after an accepted write, from the write alone; None if it was deferred."""
    return None if op.body.is_deferred else _written(op, seq, op_id)


def _written(op: MemoryPut, seq: int, op_id: str) -> Document:
    body = op.body
    return Document(
        key=body.key,
        revision=seq,
        value=body.value,
        op_id=op_id,
        author=op.author,
        agent=body.agent,
        written=op.hlc,
        hlc=op.hlc,
        hlc_author=op.author,
        whose=whose(op.auth, op.author),
        siblings=body.keeps,
    )


def entry(document: Document) -> int:
    """The sequence of the record at which a lane in this state can be entered; 0: nowhere."""
    return document.revision


def unfinished(document: Document) -> str:
    """Why a document cannot be exported as a bundle yet; empty if it can."""
    return "it has unresolved conflicts" if document.siblings else ""
