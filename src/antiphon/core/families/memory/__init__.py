"""Shared memory: documents that agents write by compare-and-set, and their conflicts (spec §10)."""

from __future__ import annotations

from typing import Final

from antiphon.core.authority import memory_rights
from antiphon.core.families.memory import ops, state, table
from antiphon.core.family import Column, Evicted, Family, Index, by_party


def _state(document: state.Document) -> str:
    """In conflict as long as a value waits to be resolved, even where the document is deleted."""
    if document.siblings:
        return "conflict"
    return "deleted" if document.value is None else "written"


def _standing(document: state.Document) -> int | None:
    """Its revision, while it is listed: it has a value, or values that wait beside it."""
    is_there = document.value is not None or document.siblings
    return document.revision or None if is_there else None


def _whose(document: state.Document) -> str | None:
    """For whom it was last changed, while values wait beside it."""
    return document.whose if document.siblings else None


_COLUMNS: Final = (
    Column("state", "text", _state),
    Column("key", "text", lambda document: document.key),
    Column("revision", "integer", lambda document: document.revision),
    Column("author", "text", lambda document: document.author),
    Column("conflicts", "integer", lambda document: len(document.siblings) or None),
    Column("standing", "integer", _standing, is_told=False),
    Column("whose", "text", _whose, is_told=False),
)
_INDEXES: Final = (
    Index(("kind", "key"), of="standing"),
    *by_party("conflicts"),
)


def _blobs(document: state.Document) -> tuple[tuple[str, ...], tuple[Evicted, ...]]:
    """Digests of its value and of the values that wait beside it."""
    own = (document.value.hash,) if isinstance(document.value, ops.Stored) else ()
    beside = (one.hash for one in document.siblings if one.hash is not None)
    return tuple(dict.fromkeys((*own, *beside))), ()


MEMORY: Final = Family(
    name="memory",
    ops=(ops.MemoryPut,),
    branches=(ops.MEMO,),
    rights={"memory": (memory_rights.MEMORY,), "read-memory": (memory_rights.READ,)},
    lane=state.DocumentLane,
    step=table.step,
    enter=table.enter,
    entry=table.entry,
    unfinished=table.unfinished,
    is_asked_again=lambda _op: False,
    is_cut=True,
    columns=_COLUMNS,
    indexes=_INDEXES,
    blobs=_blobs,
)
