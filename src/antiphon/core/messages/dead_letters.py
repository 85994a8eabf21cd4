"""The dead letters of one inbox: how many there may be, and which are shown (spec §10).

Built from the notes of their registers, like an inbox. Bounded in number and in bytes: the oldest
make room.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from antiphon.core.messages.register import DEAD_MS, Note

MAX_DEAD: Final = 1_000
MAX_DEAD_BYTES: Final = 8 * 1024 * 1024


class DeadItem(Struct, frozen=True, gc=False):
    """A dead letter, without its content."""

    id: str
    revision: int
    thread: str
    size: int
    ends_ms: int
    """When the store forgets it."""


class DeadLetters:
    """Those of one inbox."""

    def __init__(self) -> None:
        """Start empty."""
        self._items: dict[str, DeadItem] = {}
        self._size = 0

    @property
    def weight(self) -> int:
        """How much is remembered."""
        return len(self._items)

    def apply(self, id_: str, revision: int, note: Note) -> None:
        """A register has this version. An older one than is known changes nothing."""
        known = self._items.get(id_)
        if known is not None and known.revision >= revision:
            return
        self.drop(id_)
        if not note.done:
            ends_ms = note.dead_ms + DEAD_MS
            self._items[id_] = DeadItem(id_, revision, note.thread, note.size, ends_ms)
            self._size += note.size

    def drop(self, id_: str) -> None:
        """The store no longer has it."""
        known = self._items.pop(id_, None)
        if known is not None:
            self._size -= known.size

    def surplus(self, size: int) -> list[DeadItem]:
        """The oldest, which make room for one of this size."""
        found: list[DeadItem] = []
        count, total = len(self._items) + 1, self._size + size
        for item in self._items.values():
            if count <= MAX_DEAD and total <= MAX_DEAD_BYTES:
                break
            found.append(item)
            count, total = count - 1, total - item.size
        return found

    def newest(self, limit: int, most_bytes: int, now_ms: int) -> list[DeadItem]:
        """The newest of them that fit into an answer, oldest first."""
        found: list[DeadItem] = []
        for item in reversed(self._items.values()):
            most_bytes -= item.size
            if len(found) >= limit or most_bytes < 0 or item.ends_ms <= now_ms:
                break
            found.append(item)
        return found[::-1]
