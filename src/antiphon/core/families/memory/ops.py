"""The op about a document of shared memory (spec §10).

A document's lane is one subject, named after its space and the digest of its key. `prev` is the
compare: who writes has read everything on the lane. `base` says which revision its value was made
from, and that is what decides: a value that was made from an older revision does not replace a
newer one unless its writer said so.

A revision is the sequence of the record that wrote it; 0 means that nothing was there.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from antiphon.core.authority import memory_rights
from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.ids import name_of_key
from antiphon.core.record.op import AgentName, Body, Count, Digest, Kind, Op, Seq

MEMO: Final = Branch(
    stem="memo", read_by=memory_rights.READ_BY, written_by=memory_rights.WRITTEN_BY
)
MAX_KEY_LENGTH: Final = 512
MAX_INLINE_LENGTH: Final = 32 * 1024
"""Characters of a value that is in the op itself; larger ones are artifacts."""
MAX_SIBLINGS: Final = 16
"""Unresolved siblings of one document: a conflict is for a person, and a list without end is not
one that a person resolves."""

Strategy = Literal["remote", "local", "merge", "defer"]
"""What is done with a value that was made from an older revision than the present one.

`remote`: it is not written. `local`: it is written over. `merge`: not written either; its author
merges both and writes the result. `defer`: it becomes a sibling, which somebody resolves.
"""
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_LENGTH)]


class Inline(Body, frozen=True, tag="inline", tag_field="as"):
    """A value in the op: canonical JSON, as text."""

    text: Annotated[str, Meta(max_length=MAX_INLINE_LENGTH)]


class Stored(Body, frozen=True, tag="stored", tag_field="as"):
    """A value that is an artifact: canonical JSON, by content."""

    hash: Digest
    size: Count


class Sibling(Body, frozen=True):
    """A value that was deferred, by the record that holds it."""

    op: Digest
    """The id of the op."""
    seq: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    hash: Digest | None = None
    """Its artifact, if its value is one: it is kept until the conflict is resolved."""


class MemoryBody(Body, frozen=True):
    """A value for a document, and what it was made from."""

    kind: Kind
    """The space."""
    key: Key
    agent: AgentName
    """The agent on the author's node that wrote it."""
    value: Inline | Stored | None = None
    """None deletes the document."""
    base: Seq = 0
    """The revision that the value was made from."""
    found: Seq | None = None
    """The revision that was there when it was written; None: `base` itself."""
    strategy: Strategy = "remote"
    resolves: Annotated[tuple[Digest, ...], Meta(max_length=MAX_SIBLINGS)] = ()
    """Ids of the siblings that this value stands for: their conflict has ended."""
    keeps: Annotated[tuple[Sibling, ...], Meta(max_length=MAX_SIBLINGS)] = ()
    """The siblings that stay. With them the document's state follows from its last write alone,
    so that nobody has to read a lane from its beginning."""

    @property
    def is_deferred(self) -> bool:
        """Whether it becomes a sibling: its author found a newer revision than its base."""
        return self.strategy == "defer" and self.is_behind

    @property
    def is_behind(self) -> bool:
        """Whether its author found another revision than the one it was made from."""
        return self.found is not None and self.found != self.base


class MemoryPut(Op, frozen=True, tag="memory.put"):
    """Writes a document, deletes it, or defers a value."""

    body: MemoryBody
    COMMAND: ClassVar[str] = memory_rights.WRITE
    BRANCH: ClassVar[Branch] = MEMO

    def subject(self, mesh: str) -> str:
        """The document's own subject."""
        return MEMO.subject(mesh, self.body.kind, name_of_key(self.body.key))

    def words(self) -> str:
        """In a sentence."""
        body = self.body
        by = f" as {body.agent}"
        if body.is_deferred:
            return f"deferred a value of {body.key!r}{by}, made from revision {body.base}"
        did = "deleted" if body.value is None else "wrote"
        over = f" over revision {body.found}" if body.is_behind else ""
        ended = len(body.resolves)
        resolved = f" and resolved {ended} conflict{'s' if ended > 1 else ''}" if ended else ""
        return f"{did} {body.key!r}{by}{over}{resolved}"
