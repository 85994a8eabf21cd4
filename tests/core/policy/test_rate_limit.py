"""Rates, and the buckets that keep to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.rate_limit import Bucket, Rate, parse_rate
from antiphon.errors import Misconfigured


@pytest.mark.parametrize(
    "text, rate, burst",
    [
        ("10/s", Rate(10, 1), 10),
        ("100/m", Rate(100, 60), 2),
        ("5/10s", Rate(5, 10), 1),
        (" 1 / h ", Rate(1, 3600), 1),
    ],
)
def test_a_rate_is_a_number_and_a_time(text, rate, burst):
    assert parse_rate(text) == rate
    assert parse_rate(text).burst == burst


@pytest.mark.parametrize(
    "text", ["", "10", "0/s", "-1/s", "10/0s", "10/d", "x/s", "1.5/s", "9" * 9]
)
def test_anything_else_is_none(text):
    with pytest.raises(Misconfigured, match="not a rate"):
        parse_rate(text)


def test_a_bucket_begins_full_and_fills_at_its_rate():
    bucket = Bucket(parse_rate("2/s"))
    assert [bucket.take(100.0) for _ in range(3)] == [True, True, False]
    assert bucket.next_s(100.0) == 100.5
    assert not bucket.take(100.4)
    assert bucket.take(100.5)
    assert [bucket.take(200.0) for _ in range(3)] == [True, True, False], "no more than a second's"


@given(
    st.builds(Rate, st.integers(1, 50), st.sampled_from([1, 10, 60])),
    st.lists(st.floats(0, 3), max_size=200),
)
def test_no_stretch_of_time_sees_more_than_the_rate_and_a_bucketful(rate, steps):
    bucket, now_s, taken = Bucket(rate), 50.0, []
    for step in steps:
        now_s += step
        if bucket.take(now_s):
            taken.append(now_s)
    for first, begin in enumerate(taken):
        for last in range(first, len(taken)):
            allowed = rate.per_second * (taken[last] - begin) + rate.burst
            assert last - first + 1 <= allowed + 1e-6


@given(st.builds(Rate, st.integers(1, 1000), st.integers(1, 100)), st.floats(0, 1e7))
def test_a_token_is_there_when_it_was_promised(rate, now_s):
    bucket = Bucket(rate)
    while bucket.take(now_s):
        pass
    assert bucket.take(bucket.next_s(now_s) + 0.001)
