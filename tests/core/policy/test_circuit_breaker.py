"""The breaker: it opens, it waits, one probe goes ahead, and stragglers change nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.core.policy.circuit_breaker import CircuitBreaker, Phase
from tests.core.strategies import BRISK

RESET_S = 10.0


def opened(failures: int = 2) -> CircuitBreaker:
    """A breaker that opened at second 0."""
    breaker = CircuitBreaker(failures=failures, reset_s=RESET_S)
    for _ in range(failures):
        breaker.failed(breaker.ask(0.0), 0.0)
    return breaker


@BRISK
@given(st.integers(1, 6), st.lists(st.booleans(), max_size=40))
def test_it_opens_after_so_many_failures_in_a_row_and_never_earlier(limit, answers):
    breaker, row = CircuitBreaker(failures=limit, reset_s=RESET_S), 0
    for is_answered in answers:
        given_pass = breaker.ask(0.0)
        assert (given_pass is None) == (row >= limit)
        if given_pass is None:
            return
        if is_answered:
            breaker.succeeded(given_pass)
            row = 0
        else:
            breaker.failed(given_pass, 0.0)
            row += 1


def test_while_it_is_open_it_says_how_long_and_then_lets_one_through():
    breaker = opened()
    assert breaker.ask(9.99) is None
    assert breaker.wait_s(4.0) == 6.0
    assert breaker.ask(10.0) is not None
    assert breaker.phase is Phase.HALF_OPEN
    assert breaker.ask(11.0) is None
    assert breaker.wait_s(11.0) == 0.0, "somebody is at it"


@pytest.mark.parametrize("is_probed", [False, True])
def test_a_new_line_closes_it_at_once(is_probed):
    breaker, now_s = opened(), RESET_S if is_probed else RESET_S / 2
    assert (breaker.ask(now_s) is not None) == is_probed
    assert breaker.ask(now_s) is None
    assert breaker.ask(now_s, line=1) is not None
    assert breaker.phase is Phase.CLOSED
    assert breaker.ask(now_s, line=1) is not None


def test_a_failure_on_an_earlier_line_does_not_count():
    breaker = CircuitBreaker(failures=2, reset_s=RESET_S)
    first, second = breaker.ask(0.0), breaker.ask(0.0)
    breaker.failed(first, 0.0)
    third = breaker.ask(0.0, line=1)
    breaker.failed(second, 0.0)
    breaker.failed(third, 0.0)
    assert breaker.phase is Phase.CLOSED, "one in a row, on this line"
    breaker.failed(breaker.ask(0.0, line=1), 0.0)
    assert breaker.phase is Phase.OPEN


def test_the_probe_decides():
    closed = opened()
    closed.succeeded(closed.ask(10.0))
    assert closed.phase is Phase.CLOSED
    closed.failed(closed.ask(10.0), 10.0)
    assert closed.phase is Phase.CLOSED, "it counts anew"

    again = opened(failures=5)
    again.failed(again.ask(12.0), 15.0)
    assert again.phase is Phase.OPEN
    assert again.ask(24.9) is None
    assert again.ask(25.0) is not None


def test_a_probe_that_was_given_up_makes_room_for_the_next():
    breaker = opened()
    breaker.abandoned(breaker.ask(10.0))
    assert breaker.ask(10.0) is not None


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "abandoned"])
def test_calls_from_before_it_opened_say_nothing_about_now(outcome):
    breaker = CircuitBreaker(failures=2, reset_s=RESET_S)
    straggler, *others = (breaker.ask(0.0) for _ in range(3))
    for other in others:
        breaker.failed(other, 0.0)
    probe = breaker.ask(10.0)
    arguments = (straggler, 11.0) if outcome == "failed" else (straggler,)
    getattr(breaker, outcome)(*arguments)
    assert breaker.phase is Phase.HALF_OPEN
    assert breaker.ask(11.0) is None
    breaker.succeeded(probe)
    assert breaker.phase is Phase.CLOSED


class AnyTraffic(RuleBasedStateMachine):
    """Calls that begin, end and are given up in any order, at any time."""

    def __init__(self):
        super().__init__()
        self.breaker = CircuitBreaker(failures=3, reset_s=RESET_S)
        self.now_s = 0.0
        self.under_way = []
        self.opened_s = None

    @rule(by_s=st.floats(0.1, 12.0))
    def time_passes(self, by_s):
        self.now_s += by_s

    @rule()
    def somebody_asks(self):
        before = self.breaker.phase
        given_pass = self.breaker.ask(self.now_s)
        if before is Phase.CLOSED:
            assert given_pass is not None
        elif before is Phase.HALF_OPEN:
            assert given_pass is None, "one probe at a time"
        else:
            is_due = self.now_s >= self.opened_s + RESET_S
            assert (given_pass is not None) == is_due, "neither early nor never"
        if given_pass is not None:
            self.under_way.append(given_pass)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "failed", "abandoned"]))
    def one_ends(self, data, outcome):
        given_pass = self.under_way.pop(data.draw(st.integers(0, len(self.under_way) - 1)))
        before = self.breaker.phase
        if outcome == "failed":
            self.breaker.failed(given_pass, self.now_s)
            if before is not Phase.OPEN and self.breaker.phase is Phase.OPEN:
                self.opened_s = self.now_s
        else:
            getattr(self.breaker, outcome)(given_pass)
        if before is Phase.OPEN:
            assert self.breaker.phase is Phase.OPEN, "only a probe ends it"

    @invariant()
    def half_open_means_that_the_probe_is_under_way(self):
        if self.breaker.phase is Phase.HALF_OPEN:
            assert self.under_way, "or nobody would ever get through again"


TestAnyTraffic = AnyTraffic.TestCase
TestAnyTraffic.settings = settings(BRISK, stateful_step_count=30)
