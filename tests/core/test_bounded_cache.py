"""A cache that hostile values cannot fill."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.bounded_cache import BoundedCache

MOST, MOST_BYTES = 5, 100


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 150)), max_size=60))
def test_it_holds_no_more_and_no_heavier_than_it_may_and_the_newest_that_fit(puts):
    cache = BoundedCache[int, int](most=MOST, most_bytes=MOST_BYTES)
    for at, (key, weight) in enumerate(puts):
        cache.put(key, at, weight)
        assert len(cache) <= MOST
        assert cache._weight <= MOST_BYTES
        assert cache.get(key) == (at if weight <= MOST_BYTES else None)
    held = {key: cache.get(key) for key in range(10) if cache.get(key) is not None}
    assert cache._weight == sum(puts[at][1] for at in held.values())
    newest = {key: at for at, (key, _) in enumerate(puts)}
    assert all(held[key] == newest[key] for key in held)


def test_what_is_forgotten_is_the_oldest():
    cache = BoundedCache[str, str](most=2, most_bytes=MOST_BYTES)
    for key in "abc":
        cache.put(key, key, 1)
    assert [cache.get(key) for key in "abc"] == [None, "b", "c"]
