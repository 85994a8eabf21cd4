"""What was last said about each key, and from which record on.

Append-only, like the log it follows: one register serves all intervals of control state, and each
question names the record that it is about. So what one more record costs does not depend on how
many there were.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

V = TypeVar("V")


class Register(Generic[V]):
    """Values by key, each from the sequence on at which it was said."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._said: dict[str, list[tuple[int, V]]] = {}

    def __bool__(self) -> bool:
        return bool(self._said)

    def __eq__(self, other: object) -> bool:
        return self._said == other._said if isinstance(other, Register) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it grows

    def say(self, seq: int, key: str, value: V) -> None:
        """Note what holds for a key from the record at `seq` on."""
        self._said.setdefault(key, []).append((seq, value))

    def at(self, seq: int, key: str) -> V | None:
        """What held for a key after the record at `seq`; None if nothing was said by then."""
        said = self._said.get(key)
        if said is None:
            return None
        if said[-1][0] <= seq:
            return said[-1][1]
        index = bisect_right(said, seq, key=lambda one: one[0])
        return said[index - 1][1] if index else None

    def all_at(self, seq: int) -> dict[str, V]:
        """What held for each key after the record at `seq`."""
        found = {key: self.at(seq, key) for key in self._said}
        return {key: value for key, value in found.items() if value is not None}
