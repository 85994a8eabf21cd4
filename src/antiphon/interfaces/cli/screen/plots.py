"""Plots of a few characters: a bar, and a line of small bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

STEPS: Final = "▁▂▃▄▅▆▇█"
NOTHING: Final = "·"
"""Where there is no number."""


def bar(value: float, most: float, *, width: int = 24) -> str:
    """A bar as long as its part of the most; what is not 0 has at least one character."""
    if value <= 0 or most <= 0:
        return ""
    return STEPS[-1] * max(1, round(width * min(value / most, 1)))


def sparkline(values: Sequence[float | None]) -> str:
    """One small bar for each value, from the least to the most among them."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING * len(values)
    least, most = min(known), max(known)
    return "".join(NOTHING if value is None else _step(value, least, most) for value in values)


def _step(value: float, least: float, most: float) -> str:
    if most == least:
        return STEPS[len(STEPS) // 2 - 1] if most else STEPS[0]
    return STEPS[round((value - least) / (most - least) * (len(STEPS) - 1))]
