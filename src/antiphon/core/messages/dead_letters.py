"""The dead letters of one inbox: how many there may be, and which are shown (spec §10).

Built from the notes of their registers, like an inbox. Bounded in number and in bytes: the oldest
make room, of the party whose letters take most. Where not all are shown, parties take turns.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from antiphon.core.messages.register import DEAD_MS, Note
from antiphon.core.party_turns import by_party, in_turns

MAX_DEAD: Final = 1_000
MAX_DEAD_BYTES: Final = 8 * 1024 * 1024


class DeadItem(Struct, frozen=True, gc=False):
    """A dead letter, without its content."""

    id: str
    revision: int
    thread: str
    party: str
    """For whom it was sent."""
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
            self._items[id_] = DeadItem(id_, revision, note.thread, note.party, note.size, ends_ms)
            self._size += note.size

    def drop(self, id_: str) -> None:
        """The store no longer has it."""
        known = self._items.pop(id_, None)
        if known is not None:
            self._size -= known.size

    def surplus(self, size: int) -> list[DeadItem]:
        """The oldest of whoever has most, which make room for one of this size."""
        found: list[DeadItem] = []
        count, total = len(self._items) + 1, self._size + size
        if count <= MAX_DEAD and total <= MAX_DEAD_BYTES:
            return found
        left = [deque(items) for items in by_party(self._items.values(), _party)]
        while any(left) and (count > MAX_DEAD or total > MAX_DEAD_BYTES):
            is_full = count > MAX_DEAD
            most = max(left, key=len if is_full else lambda items: sum(one.size for one in items))
            found.append(most.popleft())
            count, total = count - 1, total - found[-1].size
        return found

    def newest(self, limit: int, most_bytes: int, now_ms: int) -> list[DeadItem]:
        """The newest of each party that fit into an answer, oldest first."""
        kept = [one for one in reversed(self._items.values()) if one.ends_ms > now_ms]
        found = in_turns(by_party(kept, _party), limit)
        for at, item in enumerate(found):
            most_bytes -= item.size
            if most_bytes < 0:
                found = found[:at]
                break
        shown = {one.id for one in found}
        return [one for one in self._items.values() if one.id in shown]


def _party(item: DeadItem) -> str:
    return item.party
