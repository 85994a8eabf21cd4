"""A plot of a few dozen values: bars from the server, so that a page needs no script for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

HEIGHT: Final = 72
STEP: Final = 10
GAP: Final = 2
LEAST: Final = 3.0
"""What is marked can be seen."""


class Bar(Struct, frozen=True, kw_only=True):
    """One value."""

    x: int
    y: float
    height: float
    marked: float
    """How much of the height stands for what was refused."""


class Bars(Struct, frozen=True, kw_only=True):
    """The plot."""

    width: int
    height: int
    thick: int
    bars: list[Bar]
    most: int


def bars(values: Sequence[int], shares: Sequence[float]) -> Bars:
    """The values from left to right, the largest as high as the plot; of each a share is marked."""
    most = max(values, default=0)
    found = []
    for number, (value, share) in enumerate(zip(values, shares, strict=True)):
        height = round(max(value / most * HEIGHT, 1.0) if value else 0.0, 1)
        marked = round(min(max(height * share, LEAST), height), 1) if share else 0.0
        found.append(
            Bar(x=number * STEP, y=round(HEIGHT - height, 1), height=height, marked=marked)
        )
    return Bars(width=len(values) * STEP, height=HEIGHT, thick=STEP - GAP, bars=found, most=most)
