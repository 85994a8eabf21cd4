"""Whom a worker asks: the highest priority first, the others once that has nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.families.jobs.priority import PRIORITIES, rank
from antiphon.core.policy.queue_credit import (
    MOST_AHEAD,
    SHORT_S,
    Admission,
    Source,
    admit,
    claims_ahead,
    plan,
)

PATIENCE = 5.0
LONG_AGO = -100.0


def asked(*sources, free, now_s=0.0):
    return plan(sources, free=free, now_s=now_s, patience_s=PATIENCE)


def by_priority(*fields):
    return [Source(priority=PRIORITIES[at], **given) for at, given in enumerate(fields)]


def admitted(*sources, priority, free, now_s=0.0):
    return admit(sources, priority, free=free, now_s=now_s, patience_s=PATIENCE)


DRY = {"credits": 1, "is_dry": True}
FRESH = {"credits": 1, "asked_s": 0.0}


def test_the_highest_priority_is_asked_first_and_alone():
    assert asked(*by_priority({}, {}, {}), free=4).grants == (1, 0, 0)


def test_the_next_priority_is_asked_once_the_first_has_nothing():
    made = asked(*by_priority(FRESH, {}, {}), free=4, now_s=0.01)
    assert (made.grants, made.priority) == ((0, 0, 0), "high")
    assert asked(*by_priority(DRY, {}, {}), free=4).grants == (0, 1, 0)
    assert asked(*by_priority(DRY, DRY, {}), free=4).grants == (0, 0, 1)


def test_a_priority_that_does_not_answer_holds_up_the_next_one_so_long_and_no_longer():
    made = asked(*by_priority(FRESH, {}, {}), free=4, now_s=PATIENCE - 0.1)
    assert (made.grants, made.look_s) == ((0, 0, 0), PATIENCE)
    assert asked(*by_priority(FRESH, {}, {}), free=4, now_s=made.look_s).grants == (0, 1, 0)


def test_when_nobody_has_anything_there_is_nothing_to_think_about():
    made = asked(*by_priority(DRY, DRY, DRY), free=4)
    assert (made.grants, made.priority, made.look_s) == ((0, 0, 0), None, math.inf)


def test_credits_of_a_lower_priority_take_no_room_from_higher_ones():
    asked_before = {"credits": 4, "asked_s": 0.0}
    assert asked(*by_priority(DRY, {"is_hot": True}, asked_before), free=4).grants == (0, 4, 0)
    assert asked(*by_priority({"credits": 3, "asked_s": 0.0}, {}, {}), free=4).grants == (0, 0, 0)


def test_a_job_begins_when_no_higher_priority_may_have_something():
    assert admitted(*by_priority(DRY, DRY, {}), priority="low", free=1) is Admission.TAKE
    assert admitted(*by_priority(DRY, FRESH, DRY), priority="normal", free=1) is Admission.TAKE
    assert admitted(*by_priority(DRY, FRESH, DRY), priority="low", free=1) is Admission.WAIT
    assert admitted(*by_priority(DRY, {}, DRY), priority="low", free=1) is Admission.WAIT
    assert (
        admitted(*by_priority(DRY, FRESH, DRY), priority="low", free=1, now_s=PATIENCE)
        is Admission.TAKE
    )


def test_a_job_is_returned_when_there_is_no_slot_for_it():
    assert admitted(*by_priority(DRY, DRY, {}), priority="low", free=0) is Admission.RETURN
    assert admitted(*by_priority(DRY, FRESH, {}), priority="low", free=0) is Admission.RETURN


def test_a_kind_at_its_rate_keeps_no_job_waiting():
    limited = Source(priority="high", allowance=0.5)
    assert admitted(limited, Source(priority="normal"), priority="normal", free=1) is Admission.TAKE


def test_where_work_comes_from_is_asked_for_as_much_as_fits():
    assert asked(*by_priority(DRY, {"is_hot": True}, {}), free=8).grants == (0, 8, 0)
    assert asked(*by_priority({}, {"is_hot": True}, {}), free=8).grants == (1, 0, 0)


def test_nothing_is_asked_while_no_slot_is_free():
    made = asked(*by_priority({}, {}, {}), free=0)
    assert (made.grants, made.look_s) == ((0, 0, 0), math.inf)


def test_equals_take_turns():
    first, second = Source(priority="normal", asked_s=2.0), Source(priority="normal", asked_s=1.0)
    assert asked(first, second, free=1, now_s=3.0).grants == (0, 1)
    first.asked_s, second.asked_s = 2.0, 3.0
    assert asked(first, second, free=1, now_s=4.0).grants == (1, 0)
    assert asked(first, second, free=2, now_s=4.0).grants == (1, 1)


def test_a_kind_at_its_rate_is_not_asked_and_keeps_nobody_waiting():
    limited, other = Source(priority="high", allowance=0), Source(priority="normal")
    assert asked(limited, other, free=4).grants == (0, 1)
    assert asked(Source(priority="high", allowance=2, is_hot=True), other, free=4).grants == (2, 0)


priorities = st.sampled_from(PRIORITIES)
sources = st.lists(
    st.builds(
        Source,
        priority=priorities,
        credits=st.integers(0, 4),
        asked_s=st.sampled_from([LONG_AGO, -0.01, 0.0]),
        is_dry=st.booleans(),
        is_hot=st.booleans(),
        allowance=st.sampled_from([0, 1, 3, math.inf]),
    ),
    max_size=8,
)


@given(sources, st.integers(0, 10))
def test_no_more_is_asked_than_fits_and_never_past_a_higher_priority(given_sources, free):
    made = asked(*given_sources, free=free)
    pairs = list(zip(given_sources, made.grants, strict=True))
    before = [0 if one.is_quiet(0.0, PATIENCE) else one.credits for one in given_sources]
    after = [count + grant for count, (_, grant) in zip(before, pairs, strict=True)]
    for one, grant in pairs:
        assert grant >= 0
        if grant == 0:
            continue
        assert grant + one.credits <= one.allowance
        assert not one.is_dry
        ahead = [
            at
            for at, other in enumerate(given_sources)
            if rank(other.priority) <= rank(one.priority)
        ]
        assert sum(after[at] for at in ahead) <= free, "what fits beside higher priorities"
        for other, count in zip(given_sources, after, strict=True):
            is_higher = rank(other.priority) < rank(one.priority)
            assert not is_higher or count == 0, "a higher priority may yet answer"
        assert made.priority == one.priority
    if any(after) and free > 0:
        assert made.look_s < math.inf, "silence will be noticed"


@given(sources, priorities, st.integers(1, 10))
def test_whoever_keeps_a_job_waiting_is_asked(given_sources, priority, free):
    """Otherwise it would wait in vain."""
    if admitted(*given_sources, priority=priority, free=free) is not Admission.WAIT:
        return
    made = asked(*given_sources, free=free)
    assert rank(made.priority) < rank(priority)
    assert made.look_s < math.inf


@pytest.mark.parametrize(
    "slots, longest_s, oldest_s, ahead",
    [
        (8, 0.01, 0.0, 8),
        (384, 0.01, 0.0, MOST_AHEAD),
        (8, SHORT_S, SHORT_S, 8),
        (8, 0.06, 0.0, 0),
        (8, 0.01, 0.06, 0),
        (8, math.inf, 0.0, 0),
    ],
)
def test_jobs_are_claimed_ahead_of_short_runs_only(slots, longest_s, oldest_s, ahead):
    assert claims_ahead(slots, longest_s=longest_s, oldest_s=oldest_s) == ahead
