"""What could not be dealt with rests, longer each time, and is not tried before all others."""

from antiphon.core.policy.backoff import SetAside


def test_an_item_rests_twice_as_long_after_each_try_up_to_a_longest_rest():
    aside, rests, now_ms = SetAside[str](first_ms=100, longest_ms=1_000), [], 0
    for _ in range(6):
        until_ms = aside.put("a", now_ms).until_ms
        assert aside.rests("a", until_ms - 1)
        assert not aside.rests("a", until_ms)
        rests.append(until_ms - now_ms)
        now_ms = until_ms
    assert rests == [100, 200, 400, 800, 1_000, 1_000]


def test_those_that_have_waited_longest_come_first_and_failing_again_puts_one_behind():
    aside = SetAside[str](first_ms=100)
    for at_ms, key in enumerate("abc"):
        aside.put(key, at_ms)
    assert aside.due(99, most=2) == []
    assert aside.due(200, most=2) == ["a", "b"]
    aside.put("a", 200)
    assert aside.due(10_000, most=3) == ["b", "c", "a"]


def test_what_was_dealt_with_begins_anew_if_it_fails_once_more():
    aside = SetAside[str](first_ms=100)
    aside.put("a", 0)
    aside.put("a", 100)
    assert aside.drop("a")
    assert not aside.drop("a")
    assert aside.next_ms is None
    assert aside.put("a", 1_000).until_ms == 1_100
