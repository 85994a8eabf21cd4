"""Durations as programs and people write them."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import Misconfigured
from antiphon.sdk.durations import MAX_S, UNITS_S, seconds, span_s


@pytest.mark.parametrize(
    "value, length_s",
    [
        (0, 0),
        (90, 90),
        (0.25, 0.25),
        (timedelta(minutes=15), 900),
        (timedelta(milliseconds=1), 0.001),
        ("90", 90),
        (" 1.5 ", 1.5),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("15m", 900),
        ("15min", 900),
        ("15 M", 900),
        ("2h", 7_200),
        ("1.5h", 5_400),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1h30m", 5_400),
        ("1d 2h 3m 4s 5ms", 93_784.005),
        ("1m5ms", 60.005),
        ("PT15M", 900),
        ("pt1h30m", 5_400),
        ("P1D", 86_400),
        (MAX_S, MAX_S),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_a_number_with_units(value, length_s):
    assert seconds(value) == pytest.approx(length_s)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        math.nan,
        math.inf,
        10**400,
        True,
        None,
        [15],
        timedelta(seconds=-1),
        "",
        " ",
        "soon",
        "-5m",
        "nan",
        "inf",
        "1e9",
        "15 x",
        "30m1h",
        "1h1h",
        "1,5s",
        "m",
        "P",
        "PT",
        "P1Y",
        "٣m",
        "999999999999",
        "9999999w",
        MAX_S + 1,
    ],
)
def test_anything_else_is_refused_with_the_valid_forms(value):
    with pytest.raises(Misconfigured, match="is not a duration") as refused:
        seconds(value)
    assert "15m" in refused.value.hint


@given(st.lists(st.integers(0, 9_999), min_size=6, max_size=6).filter(any))
def test_units_add_up(counts):
    parts = zip(counts, UNITS_S, strict=True)
    text = "".join(f"{count}{unit}" for count, unit in parts if count)
    expected = sum(count * unit_s for count, unit_s in zip(counts, UNITS_S.values(), strict=True))
    assert span_s(text) == pytest.approx(expected)


@given(st.text(max_size=12))
def test_a_text_is_a_duration_or_refused(text):
    try:
        length_s = seconds(text)
    except Misconfigured:
        return
    assert 0 <= length_s <= MAX_S
