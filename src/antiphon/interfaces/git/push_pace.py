"""How many jobs may be pushed in a minute, by each party."""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from antiphon.errors import Rejected

PER_MINUTE: Final = 600
"""Jobs that one party may have submitted in a minute."""


class PushPace:
    """How many jobs parties have submitted in the last minute."""

    def __init__(self, *, each: int = PER_MINUTE) -> None:
        """So many for each party."""
        self._each = each
        self._submitted: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()

    def submit(self, party: str, now_s: float) -> None:
        """Count a job of a party; `Rejected` if it had too many."""
        while self._submitted and self._submitted[0][0] <= now_s - 60:
            _, oldest = self._submitted.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        if self._counts[party] >= self._each:
            raise Rejected(
                f"{self._each:,} jobs a minute are the most that may be pushed",
                reason="pace",
                hint="push again in a minute",
            )
        self._submitted.append((now_s, party))
        self._counts[party] += 1
