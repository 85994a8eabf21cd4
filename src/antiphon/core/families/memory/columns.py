"""The columns by which a replica can query documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.families.memory.ops import Stored
from antiphon.core.family import Column, Evicted, Index

if TYPE_CHECKING:
    from antiphon.core.families.memory.state import Document


def _state(document: Document) -> str:
    """In conflict as long as a value waits to be resolved, even where the document is deleted."""
    if document.siblings:
        return "conflict"
    return "deleted" if document.value is None else "written"


COLUMNS: Final = (
    Column("state", "text", _state),
    Column("key", "text", lambda document: document.key),
    Column("revision", "integer", lambda document: document.revision),
    Column("author", "text", lambda document: document.author),
    Column("conflicts", "integer", lambda document: len(document.siblings) or None),
)
INDEXES: Final = (
    Index(("kind", "key"), of="key"),
    Index(("kind", "conflicts"), of="conflicts"),
)


def blobs(document: Document) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests of its value and of the values that wait beside it."""
    own = (document.value.hash,) if isinstance(document.value, Stored) else ()
    beside = (one.hash for one in document.siblings if one.hash is not None)
    return tuple(dict.fromkeys((*own, *beside))), ()
