"""`mesh.memory`: shared documents, by space and key (docs/do/memory.md).

notes = mesh.memory["notes.team"]
plan = await notes.get("plan")
result = await notes.put("plan", {"steps": 4}, base=plan)
if result.outcome == "skipped":
...                                   # somebody wrote it meanwhile: result.document
await notes.update("count", lambda count: (count or 0) + 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.record.subjects import check_kind
from antiphon.sdk.memory.memory_space import MemorySpace

if TYPE_CHECKING:
    from antiphon.runtime.memory.documents import Documents
    from antiphon.sdk.connection.connection import Connection


class Memory:
    """The shared memory of a mesh; spaces are its items."""

    def __init__(self, connection: Connection) -> None:
        """Use `mesh.memory`."""
        self._connection = connection
        self._documents: Documents | None = None

    def __getitem__(self, space: str) -> MemorySpace:
        """The space of this name, which is written like a kind: `notes.team`."""
        return MemorySpace(self._connection, check_kind(space), self._opened)

    def _opened(self) -> Documents:
        """What this process knows about documents, as long as it is connected."""
        from antiphon.runtime.memory.documents import Documents

        session = self._connection.session
        if self._documents is None or self._documents.session is not session:
            self._documents = Documents(session)
        return self._documents
