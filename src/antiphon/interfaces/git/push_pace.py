"""How many jobs may be pushed in a minute, by each key and in all."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from antiphon.errors import Rejected

PER_MINUTE: Final = 600
"""Jobs that one key may have submitted in a minute."""
ASKED_PER_MINUTE: Final = 6_000
"""Requests in a minute in all, refused ones too."""


class PushPace:
    """How many jobs keys have submitted in the last minute."""

    def __init__(self, *, each: int = PER_MINUTE, in_all: int = ASKED_PER_MINUTE) -> None:
        """So many for each key, and so many requests in all."""
        self._each = each
        self._in_all = in_all
        self._asked: deque[float] = deque()
        self._submitted: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()

    def ask(self, now_s: float) -> None:
        """Count a request; `Rejected` if there were too many."""
        while self._asked and self._asked[0] <= now_s - 60:
            self._asked.popleft()
        if len(self._asked) >= self._in_all:
            raise _too_many(f"this bridge answers {self._in_all:,} requests a minute")
        self._asked.append(now_s)

    def submit(self, key: str, now_s: float) -> None:
        """Count a job of a key; `Rejected` if it had too many."""
        while self._submitted and self._submitted[0][0] <= now_s - 60:
            _, oldest = self._submitted.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        if self._counts[key] >= self._each:
            raise _too_many(f"{self._each:,} jobs a minute are the most that may be pushed")
        self._submitted.append((now_s, key))
        self._counts[key] += 1


def _too_many(why: str) -> Rejected:
    return Rejected(why, reason="pace", hint="push again in a minute")
