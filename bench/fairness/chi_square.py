"""Pearson's chi-square test: how likely equal shares come out as unevenly as some counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TERMS = 10_000
_EPSILON = 1e-15


def chi_square_p(counts: Sequence[int]) -> float:
    """The chance that equal shares come out at least as unevenly as these counts."""
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 / expected for count in counts)
    return upper_gamma((len(counts) - 1) / 2, statistic / 2)


def upper_gamma(shape: float, x: float) -> float:
    """The regularised upper incomplete gamma function, by series or by continued fraction."""
    if x <= 0:
        return 1.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1 / shape
        for step in range(1, _TERMS):
            term *= x / (shape + step)
            total += term
            if term < total * _EPSILON:
                break
        return 1 - scale * total
    below = x + 1 - shape
    above = 1 / 1e-300
    inverse = fraction = 1 / below
    for step in range(1, _TERMS):
        factor = -step * (step - shape)
        below += 2
        inverse = 1 / (factor * inverse + below)
        above = below + factor / above
        change = inverse * above
        fraction *= change
        if abs(change - 1) < _EPSILON:
            break
    return scale * fraction
