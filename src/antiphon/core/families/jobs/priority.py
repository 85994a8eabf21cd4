"""The priority of a job: which waiting job is handed out first (spec §8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

Priority = Literal["high", "normal", "low"]
PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")
"""Highest first: the order in which workers ask, and of the call subjects in a lane."""


def place_of(priority: str) -> str:
    """Its token in subjects, `0` for the highest; what is no priority has no subject of a lane."""
    return _PLACES.get(priority, priority)


_PLACES: Final[dict[str, str]] = {name: f"{at}" for at, name in enumerate(PRIORITIES)}
rank: Final[Callable[[Priority], int]] = PRIORITIES.index
"""Its place among the priorities: 0 is the highest."""
