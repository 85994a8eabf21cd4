"""Memory over time, from samples of how much was in use."""

from __future__ import annotations


class MemoryTime:
    """Adds up samples: between two of them, their mean; after the last one, that one."""

    def __init__(self, began_s: float) -> None:
        """No sample yet; the first one also stands for the time before it."""
        self._last_s = began_s
        self._last_bytes: int | None = None
        self._byte_s = 0.0

    def sample(self, at_s: float, in_use: int) -> None:
        """So much was in use at that time."""
        before = in_use if self._last_bytes is None else self._last_bytes
        self._byte_s += max(at_s - self._last_s, 0.0) * (before + in_use) / 2
        self._last_s, self._last_bytes = max(at_s, self._last_s), in_use

    def kbs(self, until_s: float) -> int | None:
        """In units of 1,000 bytes for one second; None if nothing was ever sampled."""
        if self._last_bytes is None:
            return None
        rest = max(until_s - self._last_s, 0.0) * self._last_bytes
        return round((self._byte_s + rest) / 1_000)
