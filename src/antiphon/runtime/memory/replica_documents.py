"""What a replica knows about documents: lists that no single lane can give."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.core.families.memory.state import Document, DocumentLane
from antiphon.runtime.replica.replica import Queries

_decode: Final = msgspec.msgpack.Decoder(DocumentLane).decode


class ReplicaDocuments(Queries):
    """Queries about the documents of a space."""

    def standing(self, space: str, *, prefix: str = "", limit: int) -> list[Document]:
        """The documents of a space that have a value, by key."""
        return self._found(
            "kind = ? and key >= ? and substr(key, 1, ?) = ? and state in ('written', 'conflict')"
            " and revision > 0 order by key limit ?",
            space, prefix, len(prefix), prefix, limit,
        )  # fmt: skip

    def conflicts(self, space: str, *, limit: int) -> list[Document]:
        """The documents of a space with unresolved conflicts, by key."""
        where = "kind = ? and conflicts is not null order by key limit ?"
        return self._found(where, space, limit)

    def _found(self, where: str, *args: object) -> list[Document]:
        rows = self._db.execute(f"select body from lanes_memory where {where}", args)  # noqa: S608 - our own words
        states = (_decode(body).state for (body,) in rows)
        return [one for one in states if one is not None]
