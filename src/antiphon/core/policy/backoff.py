"""How long to wait before trying again: exponential, jittered, capped (spec §10).

`SetAside` has the items that a service could not deal with. Each rests twice as long after each
try, so none of them is tried before all others for ever.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from msgspec import Struct

BASE_MS: Final = 500
CAP_MS: Final = 30_000
MAX_DOUBLINGS: Final = 30
FIRST_REST_MS: Final = 500
LONGEST_REST_MS: Final = 600_000

K = TypeVar("K", bound=Hashable)


def backoff_ms(attempt: int, *, base_ms: int = BASE_MS, cap_ms: int = CAP_MS, chance: float) -> int:
    """`base·2^attempt` plus up to one base of jitter, never above the cap.

    `attempt` counts from 0; `chance` is uniform in [0, 1).
    """
    doubled = base_ms << min(attempt, MAX_DOUBLINGS)
    return min(int(doubled + chance * base_ms), cap_ms)


class Rest(Struct):
    """One item that rests."""

    tries: int
    until_ms: int


class SetAside(Generic[K]):
    """The items that rest, by key."""

    def __init__(self, *, first_ms: int = FIRST_REST_MS, longest_ms: int = LONGEST_REST_MS) -> None:
        """The first rest lasts `first_ms`, each later one twice as long, up to `longest_ms`."""
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._resting: dict[K, Rest] = {}

    def __len__(self) -> int:
        """How many items are set aside."""
        return len(self._resting)

    def __iter__(self) -> Iterator[K]:
        """The items, whether or not they are due again."""
        return iter(self._resting)

    def put(self, key: K, now_ms: int) -> Rest:
        """An item could not be dealt with: it rests, longer each time."""
        rest = self._resting.setdefault(key, Rest(0, 0))
        doublings = min(rest.tries, MAX_DOUBLINGS)
        rest.until_ms = now_ms + min(self._first_ms << doublings, self._longest_ms)
        rest.tries += 1
        return rest

    def drop(self, key: K) -> bool:
        """The item was dealt with, or is no more; whether it was set aside."""
        return self._resting.pop(key, None) is not None

    def rests(self, key: K, now_ms: int) -> bool:
        """Whether an item is to be left alone now."""
        rest = self._resting.get(key)
        return rest is not None and now_ms < rest.until_ms

    def due(self, now_ms: int, *, most: int) -> list[K]:
        """Items that may be tried again, those first that have waited longest."""
        ready = [
            (rest.until_ms, key) for key, rest in self._resting.items() if rest.until_ms <= now_ms
        ]
        ready.sort(key=lambda pair: pair[0])
        return [key for _, key in ready[:most]]

    @property
    def next_ms(self) -> int | None:
        """When the next item may be tried again."""
        return min((rest.until_ms for rest in self._resting.values()), default=None)

    def clear(self) -> None:
        """Forget all of them."""
        self._resting.clear()
