"""Whom a worker asks: the most urgent first, the others once those are silent."""

import math

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.asking import Source, plan

PATIENCE = 0.02
LONG_AGO = -100.0


def asked(*sources, free, now_s=0.0):
    return plan(sources, free=free, now_s=now_s, patience_s=PATIENCE)


def classes(*fields):
    return [Source(level=level, **given) for level, given in enumerate(fields)]


QUIET = {"credits": 1, "asked_s": LONG_AGO}


def test_the_most_urgent_class_is_asked_first_and_alone():
    assert asked(*classes({}, {}, {}), free=4).grants == (1, 0, 0)


def test_the_next_class_is_asked_once_the_first_is_silent():
    fresh = {"credits": 1, "asked_s": 0.0}
    made = asked(*classes(fresh, {}, {}), free=4, now_s=0.01)
    assert (made.grants, made.look_s) == ((0, 0, 0), PATIENCE)
    assert asked(*classes(fresh, {}, {}), free=4, now_s=made.look_s).grants == (0, 1, 0)
    assert asked(*classes(QUIET, QUIET, {}), free=4).grants == (0, 0, 1)


def test_when_all_are_silent_there_is_nothing_to_think_about():
    made = asked(*classes(QUIET, QUIET, QUIET), free=4)
    assert (made.grants, made.look_s) == ((0, 0, 0), math.inf)


def test_where_work_comes_from_is_asked_for_as_much_as_fits():
    assert asked(*classes(QUIET, {"is_hot": True}, {}), free=8).grants == (0, 8, 0)
    assert asked(*classes({}, {"is_hot": True}, {}), free=8).grants == (1, 0, 0)


def test_nothing_is_asked_while_no_slot_is_free():
    made = asked(*classes({}, {}, {}), free=0)
    assert (made.grants, made.look_s) == ((0, 0, 0), math.inf)


def test_equals_take_turns():
    first, second = Source(level=1, asked_s=2.0), Source(level=1, asked_s=1.0)
    assert asked(first, second, free=1, now_s=3.0).grants == (0, 1)
    first.asked_s, second.asked_s = 2.0, 3.0
    assert asked(first, second, free=1, now_s=4.0).grants == (1, 0)
    assert asked(first, second, free=2, now_s=4.0).grants == (1, 1)


def test_a_kind_at_its_rate_is_not_asked_and_keeps_nobody_waiting():
    limited, other = Source(level=0, allowance=0), Source(level=1)
    assert asked(limited, other, free=4).grants == (0, 1)
    assert asked(Source(level=0, allowance=2, is_hot=True), other, free=4).grants == (2, 0)


sources = st.lists(
    st.builds(
        Source,
        level=st.integers(0, 2),
        credits=st.integers(0, 4),
        asked_s=st.sampled_from([LONG_AGO, -0.01, 0.0]),
        is_hot=st.booleans(),
        allowance=st.sampled_from([0, 1, 3, math.inf]),
    ),
    max_size=8,
)


@given(sources, st.integers(0, 10))
def test_no_more_is_asked_than_fits_and_never_past_someone_more_urgent(given_sources, free):
    made = asked(*given_sources, free=free)
    fresh = [
        grant if one.is_quiet(0.0, PATIENCE) else grant + one.credits
        for one, grant in zip(given_sources, made.grants, strict=True)
    ]
    before = sum(one.credits for one in given_sources if not one.is_quiet(0.0, PATIENCE))
    assert sum(fresh) <= max(free, before), "what fits, or what was asked before slots filled"
    for one, grant in zip(given_sources, made.grants, strict=True):
        assert grant >= 0
        if grant == 0:
            continue
        assert grant + one.credits <= one.allowance
        for other, count in zip(given_sources, fresh, strict=True):
            assert other.level >= one.level or count == 0, "somebody more urgent may yet answer"
    if any(fresh) and free > 0:
        assert made.look_s < math.inf, "silence will be noticed"
