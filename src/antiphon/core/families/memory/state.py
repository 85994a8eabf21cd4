"""A document's state as derived from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from antiphon.core.families.memory.ops import Inline, Sibling, Stored
from antiphon.core.family import Lane, Over
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.ids import name_of_key

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control


class Document(Struct, frozen=True, kw_only=True):
    """One document: its newest revision, and the values that wait beside it."""

    key: str
    revision: int
    """The sequence of the record that wrote it; 0: only deferred values were written so far."""
    value: Inline | Stored | None
    """None: it was deleted."""
    op_id: str
    """The op that wrote it; empty while `revision` is 0."""
    author: str
    agent: str
    written: tuple[int, int]
    """The timestamp of that op."""
    hlc: tuple[int, int]
    hlc_author: str
    whose: str
    """For whom it was last changed (`core/authority/parties.py`)."""
    siblings: tuple[Sibling, ...] = ()
    """Values that were deferred and that no write has resolved, oldest first."""


class DocumentLane(Lane, frozen=True):
    """The last sequence on the document's subject, and the document."""

    tails: tuple[int, ...] = (0,)
    state: Document | None = None

    def over(self, _control: Control) -> Over | None:
        """Once the document is deleted and nothing waits beside it."""
        document = self.state
        if document is None or document.value is not None or document.siblings:
            return None
        return Over(self.time_ms)


def document_key(space: str, key: str) -> LaneKey:
    """The key of a document's lane."""
    return LaneKey("memory", space, name_of_key(key))
