"""A cache that is bounded by the weight of its values as well as by their number.

Most of what is cached comes from records that others wrote, and they choose the size. The oldest
values are dropped first. That takes an `OrderedDict`: finding the first key of a `dict` that loses
its first keys takes longer the more it has lost.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values by key, up to a number and a total weight."""

    __slots__ = ("_held", "_most", "_most_bytes", "_weight")

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """Start empty."""
        self._most = most
        self._most_bytes = most_bytes
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._weight = 0

    def __len__(self) -> int:
        return len(self._held)

    def has(self, key: K) -> bool:
        """Whether there is a value."""
        return key in self._held

    def get(self, key: K) -> V | None:
        """The value of a key, or None."""
        found = self._held.get(key)
        return None if found is None else found[0]

    def drop(self, key: K) -> None:
        """Forget a value, if it is there."""
        found = self._held.pop(key, None)
        if found is not None:
            self._weight -= found[1]

    def put(self, key: K, value: V, weight: int) -> None:
        """Store a value; the oldest ones make room for it."""
        before = self._held.pop(key, None)
        if before is not None:
            self._weight -= before[1]
        self._held[key] = (value, weight)
        self._weight += weight
        while self._held and (len(self._held) > self._most or self._weight > self._most_bytes):
            _, (_, gone) = self._held.popitem(last=False)
            self._weight -= gone
