"""Whom a worker asks: the most urgent first, the others once those have nothing."""

import math

from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.asking import Admission, Source, admit, plan

PATIENCE = 5.0
LONG_AGO = -100.0


def asked(*sources, free, now_s=0.0):
    return plan(sources, free=free, now_s=now_s, patience_s=PATIENCE)


def classes(*fields):
    return [Source(level=level, **given) for level, given in enumerate(fields)]


def admitted(*sources, level, free, now_s=0.0):
    return admit(sources, level, free=free, now_s=now_s, patience_s=PATIENCE)


DRY = {"credits": 1, "is_dry": True}
FRESH = {"credits": 1, "asked_s": 0.0}


def test_the_most_urgent_class_is_asked_first_and_alone():
    assert asked(*classes({}, {}, {}), free=4).grants == (1, 0, 0)


def test_the_next_class_is_asked_once_the_first_has_nothing():
    made = asked(*classes(FRESH, {}, {}), free=4, now_s=0.01)
    assert (made.grants, made.level) == ((0, 0, 0), 0)
    assert asked(*classes(DRY, {}, {}), free=4).grants == (0, 1, 0)
    assert asked(*classes(DRY, DRY, {}), free=4).grants == (0, 0, 1)


def test_a_class_that_does_not_answer_holds_up_the_next_one_so_long_and_no_longer():
    made = asked(*classes(FRESH, {}, {}), free=4, now_s=PATIENCE - 0.1)
    assert (made.grants, made.look_s) == ((0, 0, 0), PATIENCE)
    assert asked(*classes(FRESH, {}, {}), free=4, now_s=made.look_s).grants == (0, 1, 0)


def test_when_nobody_has_anything_there_is_nothing_to_think_about():
    made = asked(*classes(DRY, DRY, DRY), free=4)
    assert (made.grants, made.level, made.look_s) == ((0, 0, 0), math.inf, math.inf)


def test_less_urgent_credits_take_no_room_from_more_urgent_ones():
    asked_before = {"credits": 4, "asked_s": 0.0}
    assert asked(*classes(DRY, {"is_hot": True}, asked_before), free=4).grants == (0, 4, 0)
    assert asked(*classes({"credits": 3, "asked_s": 0.0}, {}, {}), free=4).grants == (0, 0, 0)


def test_a_job_begins_when_nobody_more_urgent_may_have_something():
    assert admitted(*classes(DRY, DRY, {}), level=2, free=1) is Admission.TAKE
    assert admitted(*classes(DRY, FRESH, DRY), level=1, free=1) is Admission.TAKE
    assert admitted(*classes(DRY, FRESH, DRY), level=2, free=1) is Admission.WAIT
    assert admitted(*classes(DRY, {}, DRY), level=2, free=1) is Admission.WAIT
    assert admitted(*classes(DRY, FRESH, DRY), level=2, free=1, now_s=PATIENCE) is Admission.TAKE


def test_a_job_is_returned_when_there_is_no_slot_for_it():
    assert admitted(*classes(DRY, DRY, {}), level=2, free=0) is Admission.RETURN
    assert admitted(*classes(DRY, FRESH, {}), level=2, free=0) is Admission.RETURN


def test_a_kind_at_its_rate_keeps_no_job_waiting():
    limited = Source(level=0, allowance=0.5)
    assert admitted(limited, Source(level=1), level=1, free=1) is Admission.TAKE


def test_where_work_comes_from_is_asked_for_as_much_as_fits():
    assert asked(*classes(DRY, {"is_hot": True}, {}), free=8).grants == (0, 8, 0)
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
        is_dry=st.booleans(),
        is_hot=st.booleans(),
        allowance=st.sampled_from([0, 1, 3, math.inf]),
    ),
    max_size=8,
)


@given(sources, st.integers(0, 10))
def test_no_more_is_asked_than_fits_and_never_past_someone_more_urgent(given_sources, free):
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
        ahead = [at for at, other in enumerate(given_sources) if other.level <= one.level]
        assert sum(after[at] for at in ahead) <= free, "what fits beside the more urgent"
        for other, count in zip(given_sources, after, strict=True):
            assert other.level >= one.level or count == 0, "somebody more urgent may yet answer"
        assert made.level == one.level
    if any(after) and free > 0:
        assert made.look_s < math.inf, "silence will be noticed"


@given(sources, st.integers(0, 2), st.integers(1, 10))
def test_whoever_keeps_a_job_waiting_is_asked(given_sources, level, free):
    """Otherwise it would wait in vain."""
    if admitted(*given_sources, level=level, free=free) is not Admission.WAIT:
        return
    made = asked(*given_sources, free=free)
    assert made.level < level
    assert made.look_s < math.inf
