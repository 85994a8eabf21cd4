"""How long to wait before trying again: exponential, jittered, capped (spec §10)."""

from __future__ import annotations

from typing import Final

BASE_MS: Final = 500
CAP_MS: Final = 30_000
MAX_DOUBLINGS: Final = 30


def backoff_ms(attempt: int, *, base_ms: int = BASE_MS, cap_ms: int = CAP_MS, chance: float) -> int:
    """`base·2^attempt` plus up to one base of jitter, never above the cap.

    `attempt` counts from 0; `chance` is uniform in [0, 1).
    """
    doubled = base_ms << min(attempt, MAX_DOUBLINGS)
    return min(int(doubled + chance * base_ms), cap_ms)
