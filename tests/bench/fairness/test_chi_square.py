"""The chi-square test of the benchmarks, by values from printed tables."""

import math

import pytest

from bench.fairness.chi_square import chi_square_p, upper_gamma


@pytest.mark.parametrize(
    "freedom, statistic, p",
    [(1, 3.841459, 0.05), (2, 5.991465, 0.05), (9, 21.665994, 0.01), (49, 85.350565, 0.001)],
)
def test_it_agrees_with_the_tables(freedom, statistic, p):
    assert upper_gamma(freedom / 2, statistic / 2) == pytest.approx(p, rel=1e-3)


def test_two_degrees_of_freedom_are_an_exponential():
    for x in (0.1, 1.0, 7.5, 40.0):
        assert upper_gamma(1, x) == pytest.approx(math.exp(-x))


def test_even_counts_are_likely_and_uneven_ones_are_not():
    assert chi_square_p([100, 100, 100]) == 1
    assert chi_square_p([100, 110, 90]) > 0.1
    assert chi_square_p([100, 200, 100]) < 1e-6
