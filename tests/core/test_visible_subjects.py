"""What a scope shows: the arithmetic of subject filters, and of kinds turned into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.authority.scope import admits
from antiphon.core.record.subjects import matches
from antiphon.core.visible_subjects import is_filter, meet, sight_of
from antiphon.testing.engine_suite.harness import job_id
from tests.job_lanes import job_of
from tests.job_scopes import BRANCHES, job_scope

TOKENS = st.sampled_from(["a", "b", "c"])
FILTERS = st.builds(
    lambda tokens, is_open: ".".join([*tokens, *([">"] if is_open else [])]),
    st.lists(st.one_of(TOKENS, st.just("*")), min_size=1, max_size=4),
    st.booleans(),
)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=5).map(".".join)


@given(one=FILTERS, other=FILTERS, subject=SUBJECTS)
def test_two_filters_meet_in_the_subjects_that_match_both(one, other, subject):
    both = meet(one, other)
    expected = matches(one, subject) and matches(other, subject)
    assert expected == (both is not None and matches(both, subject))
    assert both is None or (is_filter(both) and meet(both, one) == meet(both, other) == both)
    assert meet(other, one) == both


@given(inner=FILTERS, outer=FILTERS, subjects=st.lists(SUBJECTS, min_size=1, max_size=20))
def test_a_filter_lies_within_another_or_shows_a_subject_outside(inner, outer, subjects):
    if meet(inner, outer) == inner:
        assert all(matches(outer, one) for one in subjects if matches(inner, one))
    else:
        # Its freest subjects: a token that nobody else names, at every length that it allows.
        free = ".".join("z" if one in "*>" else one for one in inner.split("."))
        longer = [free, f"{free}.z", f"{free}.z.z.z.z"] if inner.endswith(">") else [free]
        assert not all(matches(outer, one) for one in longer)


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b", "a b", "a\r\nb", "ä"]
)
def test_what_is_no_filter(text):
    assert not is_filter(text)


KINDS = st.sampled_from(["a", "a.b", "a.b.c", "b", "b.a", "c"])
KIND_FILTERS = st.one_of(KINDS, KINDS.map(lambda kind: f"{kind}.>"), st.just(">"))
PLACES = st.sampled_from(["jobs.job", "jobs.wait", "jobs.0", "jobs.1", "jobs.2", "ctl", "strange"])


@given(reads=st.lists(KIND_FILTERS, max_size=4), place=PLACES, kind=KINDS, pattern=FILTERS)
def test_a_sight_shows_control_and_the_kinds_of_its_scope(reads, place, kind, pattern):
    visible = sight_of("m", BRANCHES, job_scope(reads=reads))
    subject = f"ap.m.{place}.{kind}.{job_id(1)}"
    lane = job_of(subject)
    expected = place == "ctl" or ">" in reads
    expected |= lane is not None and any(admits(one, lane[0]) for one in reads)
    assert visible.sees(subject) == expected
    assert visible.sees("ap.m.seal")
    assert not visible.sees(f"ap.other.{place}.{kind}.{job_id(1)}")
    for wide in (f"ap.m.{pattern}", pattern, "ap.m.>", ">"):
        parts = visible.parts(wide)
        assert sum(matches(one, subject) for one in parts) == (expected and matches(wide, subject))
