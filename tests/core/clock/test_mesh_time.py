"""What a node may believe about the mesh's time, by stamps and by a clock that nobody sets."""

import math

from antiphon.core.clock.mesh_time import BELIEVED_MAX_MS, BELIEVED_MS, READ_BELIEVED_MS, Bounds

NOON = 1_000_000


def refused(bounds, boot_ms):
    bounds.told(NOON + boot_ms, sent_boot_ms=boot_ms, boot_ms=boot_ms, was_refused=True)


def test_a_record_that_was_read_shows_how_late_it_is_at_least_and_never_at_most():
    bounds = Bounds()
    bounds.saw(NOON, boot_ms=100)
    bounds.saw(NOON - 50, boot_ms=200)
    assert bounds.least_ms(300) == NOON + 200
    assert bounds.most_ms(300) == math.inf


def test_an_own_record_shows_both_and_the_time_goes_on():
    bounds = Bounds()
    bounds.told(NOON, sent_boot_ms=100, boot_ms=140, was_refused=False)
    assert (bounds.least_ms(240), bounds.most_ms(240)) == (NOON + 100, NOON + 140)


def test_what_is_read_later_is_never_beyond_what_it_is_at_most():
    bounds = Bounds()
    bounds.told(NOON, sent_boot_ms=0, boot_ms=0, was_refused=False)
    bounds.saw(NOON + 5_000, boot_ms=1_000)  # the engine's clock was set
    assert bounds.least_ms(1_000) == bounds.most_ms(1_000) == NOON + 5_000


def test_refusals_in_a_row_are_believed_longer_each_time_and_an_accepted_one_begins_anew():
    bounds, boot_ms, lasted = Bounds(), 0, []
    for _ in range(7):
        refused(bounds, boot_ms)
        until = next(
            ms
            for ms in range(boot_ms, boot_ms + 2 * BELIEVED_MAX_MS, 1_000)
            if bounds.most_ms(ms + 1) == math.inf
        )
        lasted.append(until - boot_ms)
        boot_ms = until + 1_000
    doubled = [min(BELIEVED_MS * 2**n, BELIEVED_MAX_MS) for n in range(7)]
    assert lasted == doubled
    bounds.told(NOON, sent_boot_ms=boot_ms, boot_ms=boot_ms, was_refused=False)
    refused(bounds, boot_ms)
    assert bounds.most_ms(boot_ms + BELIEVED_MS) < bounds.most_ms(boot_ms + BELIEVED_MS + 1)


def test_a_record_of_an_engine_that_was_ahead_is_not_believed_for_ever():
    bounds = Bounds()
    bounds.saw(NOON + 600_000, boot_ms=0)  # the engine's clock was ten minutes ahead
    for boot_ms in range(0, 3 * READ_BELIEVED_MS, 1_000):
        bounds.saw(NOON + boot_ms, boot_ms=boot_ms)
    assert bounds.least_ms(boot_ms) == NOON + boot_ms


def test_what_records_show_is_used_for_a_while_after_the_last_one_and_then_not_any_more():
    bounds = Bounds()
    bounds.saw(NOON, boot_ms=0)
    assert bounds.least_ms(READ_BELIEVED_MS) == NOON + READ_BELIEVED_MS
    assert bounds.least_ms(2 * READ_BELIEVED_MS) == NOON + 2 * READ_BELIEVED_MS
    assert bounds.least_ms(2 * READ_BELIEVED_MS + 1) == -math.inf


def test_a_weak_bound_does_not_replace_a_better_one_that_is_still_fresh():
    bounds = Bounds()
    bounds.saw(NOON, boot_ms=0)
    bounds.saw(NOON - 500_000, boot_ms=READ_BELIEVED_MS + 1)  # an old record is read again
    assert bounds.least_ms(READ_BELIEVED_MS + 1) == NOON + READ_BELIEVED_MS + 1
    bounds.saw(NOON - 500_000, boot_ms=2 * READ_BELIEVED_MS + 2)
    assert bounds.least_ms(2 * READ_BELIEVED_MS + 2) < NOON
