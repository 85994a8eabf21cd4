"""When a coordinator counts as quiet, and when nobody can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.policy import coordinator_silence
from antiphon.core.policy.coordinator_silence import (
    QUIET_AFTER_MS,
    listened,
    quiet_since,
    shown,
    watching,
)
from tests.core.strategies import THOROUGH

T0 = 1_700_000_000_000
GAP_MS = 90_000
HUB, OTHER, OWNER = "did:hub", "did:other", "did:owner"


def watch_over(who: str = HUB, *, at_ms: int = T0) -> coordinator_silence.Watch:
    return watching(None, who, at_ms)


def since(watch, at_ms: int) -> int | None:
    return quiet_since(watch, T0 + at_ms, owner=OWNER)


@pytest.mark.req("M17")
@pytest.mark.parametrize("is_answer", [True, False])
def test_it_is_quiet_once_it_has_not_shown_itself_for_longer_than_the_threshold(is_answer):
    watch = shown(watch_over(), HUB, T0 + 5_000, is_answer=is_answer)
    assert since(watch, 5_000 + QUIET_AFTER_MS) is None
    assert since(watch, 5_001 + QUIET_AFTER_MS) == T0 + 5_000
    watch = shown(watch, HUB, T0 + 200_000, is_answer=is_answer)
    assert since(watch, 200_001) is None


def test_what_others_do_is_no_sign_of_life():
    watch = shown(watch_over(), OTHER, T0 + 100_000, is_answer=True)
    assert since(watch, 1 + QUIET_AFTER_MS) == T0


def test_an_older_sign_of_life_takes_nothing_back():
    watch = shown(watch_over(), HUB, T0 + 50_000, is_answer=True)
    assert shown(watch, HUB, T0 - 999_999, is_answer=False) == watch


@pytest.mark.req("M17")
def test_a_newly_designated_coordinator_starts_fresh():
    old = shown(watch_over(), HUB, T0, is_answer=True)
    late_ms = T0 + 10 * QUIET_AFTER_MS
    assert quiet_since(old, late_ms, owner=OWNER) is not None
    new = watching(old, OTHER, late_ms)
    assert quiet_since(new, late_ms + QUIET_AFTER_MS, owner=OWNER) is None
    assert quiet_since(new, late_ms + QUIET_AFTER_MS + 1, owner=OWNER) == late_ms
    assert watching(new, OTHER, late_ms + 7) is new


def test_who_slept_or_was_cut_off_itself_listens_anew_before_it_says_anything():
    watch = shown(watch_over(), HUB, T0, is_answer=True)
    slept = listened(watch, T0 + 3_600_000, gap_ms=GAP_MS)
    assert since(slept, 3_600_000 + QUIET_AFTER_MS) is None
    assert since(slept, 3_600_001 + QUIET_AFTER_MS) == T0, "but since when is known"
    awake = watch
    for at_ms in range(30_000, 150_001, 30_000):
        awake = listened(awake, T0 + at_ms, gap_ms=GAP_MS)
    assert since(awake, 150_000) == T0


def test_a_clock_that_was_set_back_is_no_reason_for_alarm():
    watch = listened(watch_over(), T0 + 30_000, gap_ms=GAP_MS)
    back = listened(watch, T0 - 500_000, gap_ms=GAP_MS)
    assert since(back, -500_000 + QUIET_AFTER_MS) is None


def test_the_owners_own_key_is_not_missed_before_it_has_answered_once():
    idle = shown(watch_over(OWNER), OWNER, T0, is_answer=False)
    assert since(idle, 10 * QUIET_AFTER_MS) is None, "an owner op typed by hand is no process"
    ran = shown(idle, OWNER, T0 + 1_000, is_answer=True)
    assert since(ran, 10 * QUIET_AFTER_MS) == T0 + 1_000


def test_nobody_asks_right_after_a_sign_of_life():
    soon = QUIET_AFTER_MS // 4
    watch = watch_over()
    assert coordinator_silence.should_ask(watch, T0, owner=OWNER)
    wrote = shown(watch, HUB, T0, is_answer=False)
    assert coordinator_silence.should_ask(wrote, T0 + 1, owner=OWNER), (
        "whether a process answers is not known yet"
    )
    answered = shown(watch, HUB, T0, is_answer=True)
    assert not coordinator_silence.should_ask(answered, T0 + soon - 1, owner=OWNER)
    assert coordinator_silence.should_ask(answered, T0 + soon, owner=OWNER)
    assert coordinator_silence.should_ask(answered, T0 - 1, owner=OWNER), "the clock was set back"
    assert not coordinator_silence.should_ask(watch_over(OWNER), T0, owner=OWNER), (
        "usually no process runs under the owner's key"
    )


@THOROUGH
@given(st.lists(st.tuples(st.integers(1, GAP_MS), st.booleans()), max_size=30))
def test_whoever_listens_all_the_time_calls_it_quiet_exactly_when_it_is(rounds):
    watch, now_ms, last_ms = watch_over(), T0, T0
    for pause_ms, answers in rounds:
        now_ms += pause_ms
        watch = listened(watch, now_ms, gap_ms=GAP_MS)
        if answers:
            watch, last_ms = shown(watch, HUB, now_ms, is_answer=True), now_ms
        is_quiet = now_ms - last_ms > QUIET_AFTER_MS
        assert quiet_since(watch, now_ms, owner=OWNER) == (last_ms if is_quiet else None)
