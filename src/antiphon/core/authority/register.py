"""A register: values by key, each in force from some record on.

Append-only, like the log: one register is shared by all intervals of control state, and every query
names a sequence. So the cost of one more record does not depend on how many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Generic, TypeVar

V = TypeVar("V")


class Register(Generic[V]):
    """Values by key, each from its sequence on."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        """Start empty."""
        self._values: dict[str, list[tuple[int, V]]] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Register) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it grows

    def write(self, seq: int, key: str, value: V) -> None:
        """Set the value of a key from the record at `seq` on."""
        self._values.setdefault(key, []).append((seq, value))

    def at(self, seq: int, key: str) -> V | None:
        """The value of a key after the record at `seq`; None if there was none by then."""
        values = self._values.get(key)
        if values is None:
            return None
        if values[-1][0] <= seq:
            return values[-1][1]
        index = bisect_right(values, seq, key=lambda one: one[0])
        return values[index - 1][1] if index else None

    def all_at(self, seq: int) -> dict[str, V]:
        """The value of each key after the record at `seq`."""
        found = {key: self.at(seq, key) for key in self._values}
        return {key: value for key, value in found.items() if value is not None}
