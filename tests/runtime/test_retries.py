"""Calls that are made again, and how long they wait."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy.backoff import backoff_ms
from antiphon.errors import EngineDenied, Rejected, Unavailable
from antiphon.runtime.retries import retrying

pytestmark = pytest.mark.req("S15")


class Chance:
    """Random numbers that are all the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


class Calls:
    """A call that fails a number of times."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error = failures, error
        self.at: list[float] = []

    async def __call__(self) -> str:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) <= self.failures:
            raise self.error
        return "done"

    @property
    def pauses(self) -> list[float]:
        return [round(b - a, 3) for a, b in zip(self.at, self.at[1:], strict=False)]


@pytest.mark.virtual_time
@pytest.mark.parametrize("chance, pauses", [(0.0, [0.5, 1, 2]), (0.5, [0.75, 1.25, 2.25])])
async def test_a_call_without_an_answer_is_made_three_more_times(chance, pauses):
    calls = Calls(3, Unavailable("nobody answers"))
    assert await retrying(calls, Chance(chance)) == "done"
    assert calls.pauses == pauses


@pytest.mark.virtual_time
async def test_after_the_last_try_its_error_is_raised():
    calls = Calls(9, Unavailable("nobody answers"))
    with pytest.raises(Unavailable):
        await retrying(calls, Chance(0.0))
    assert len(calls.at) == 4


@pytest.mark.virtual_time
@pytest.mark.parametrize("no", [Rejected("not you", reason="scope"), EngineDenied("not this")])
async def test_an_answer_is_an_answer_also_if_it_says_no(no):
    calls = Calls(9, no)
    with pytest.raises(type(no)):
        await retrying(calls, Chance(0.0))
    assert len(calls.at) == 1


@given(attempt=st.integers(0, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_pause_is_doubled_jittered_and_capped(attempt, chance):
    expected = min(30_000, 500 * 2 ** min(attempt, 100) + int(chance * 500))
    assert backoff_ms(attempt, chance=chance) == expected
