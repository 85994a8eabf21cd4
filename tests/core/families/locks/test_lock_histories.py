"""Locks under any sequence of ops: one holder at a time, and fences that only grow (spec §10).

The model is written without the table: a list of holds with the times at which each ended.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.held_locks import LockStory
from tests.core.ledger import T0
from tests.examples import examples

WHO = st.tuples(st.sampled_from([ALICE, BOB, CAROL]), st.sampled_from(["a", "b"]))
TTL = st.sampled_from([5_000, 7_000, 30_000])
FENCES = st.sampled_from(["current", "earlier", "none", "later"])
WAIT = st.sampled_from([0, 1, 10, 2_000, 5_001, 9_000, 40_000])
SKEW = st.integers(-2_500, 2_500)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "renew", "release", "pass", "break"]),
        WHO,
        WHO,
        TTL,
        FENCES,
        WAIT,
        SKEW,
    ),
    max_size=25,
)


class Model:
    """Who holds it, by two clocks; says what the log's rules must have said."""

    def __init__(self) -> None:
        self.holder = None
        self.deadline = 0
        self.fence = ""
        self.fences: list[str] = []

    def is_over(self, wall: int, stamp: int) -> bool:
        return wall > self.deadline and stamp > self.deadline

    def saw(self, what: str, who, to, ttl: int, named: str | None, wall: int, stamp: int, fence):
        """One accepted op; `fence` is the lock's afterwards."""
        if what == "take":
            assert self.holder is None or self.is_over(wall, stamp), "two holders"
            self._begin(who, wall + ttl, fence)
        elif what == "renew":
            assert (self.holder, self.fence) == (who, named)
            assert max(wall, stamp) <= self.deadline <= wall + ttl
            self.deadline = wall + ttl
            assert fence == self.fence
        elif what == "pass":
            assert (self.holder, self.fence) == (who, named)
            self._begin(to, wall + ttl, fence)
        elif what == "release":
            assert (self.holder, self.fence) == (who, named)
            self.holder = None
        else:
            self.holder = None

    def _begin(self, who, deadline: int, fence: str) -> None:
        assert all(fence > earlier for earlier in self.fences), "a fence went back"
        self.holder, self.deadline, self.fence = who, deadline, fence
        self.fences.append(fence)


@pytest.mark.req("S5", "S6")
@settings(max_examples=examples(120))
@given(STEPS)
def test_one_holder_at_a_time_and_fences_only_grow(steps):
    story, model, stamp = LockStory(), Model(), 10_000
    for name, who, to, ttl, which, wait, skew in steps:
        what = name
        stamp += wait
        wall = max(stamp + skew, 0)
        named = {
            "current": model.fence or "0" * 16,
            "earlier": model.fences[0] if model.fences else "0" * 16,
            "later": "f" * 16,
            "none": None,
        }[which]
        how = {"at": wall, "stamp": stamp}
        by, agent = who
        if what == "take":
            named = None
            verdict = story.take(by, agent=agent, ttl_ms=ttl, **how)
        elif what == "renew":
            verdict = story.take(by, agent=agent, ttl_ms=ttl, fence=named, **how)
            what = "take" if named is None else "renew"
        elif what == "release":
            verdict = story.release(by, agent=agent, fence=named or "0" * 16, **how)
        elif what == "pass":
            verdict = story.pass_on(
                to[0], by, agent=agent, to_agent=to[1], ttl_ms=ttl, fence=named or "0" * 16, **how
            )
        else:
            verdict = story.break_it(OWNER, fence=named, **how)
        if verdict is Verdict.OK:
            model.saw(what, who, to, ttl, named, story.lock.hlc[0] - T0, stamp, story.fence)
        held = story.hold
        assert (held is None) == (model.holder is None)
        assert held is None or (held.fence == model.fence and held.is_of(*_named(model.holder)))


def _named(holder) -> tuple[str, str]:
    return holder[0].did, holder[1]


def test_the_model_would_see_two_holders_and_a_fence_that_goes_back():
    model = Model()
    model.saw("take", (ALICE, "a"), None, 5_000, None, 0, 0, "2")
    with pytest.raises(AssertionError, match="two holders"):
        model.saw("take", (BOB, "a"), None, 5_000, None, 5_001, 5_000, "3")
    with pytest.raises(AssertionError, match="went back"):
        model.saw("take", (BOB, "a"), None, 5_000, None, 5_001, 5_001, "1")
