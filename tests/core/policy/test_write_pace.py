"""Who is paused for writing faster than the mesh reads, and for how long."""

import pytest

from antiphon.core.families.jobs.ops import JobClaim, JobComplete, JobStart, JobYield
from antiphon.core.policy import write_pace
from antiphon.core.policy.write_pace import (
    BEHIND_MS,
    LATE_LOOKS,
    LATE_MS,
    LEAST_RECORDS,
    OTHERS_MS,
    SHARED_RECORDS,
    SLOW_MS,
    WINDOW_MS,
    WritePace,
    is_counted,
)

AT_MS = 1_700_000_000_000


def written(pace: WritePace, party: str, records: int, *, size: int = 100, links: int = 0):
    for number in range(records):
        pace.note(party, AT_MS + number * WINDOW_MS // (2 * records), size, links)


def test_nobody_is_found_while_the_node_keeps_up():
    pace = WritePace()
    written(pace, "bulk", 10 * LEAST_RECORDS)
    assert pace.excess(BEHIND_MS - 1) is None
    assert pace.excess(BEHIND_MS).party == "bulk"


def test_who_wrote_less_than_a_node_should_mind_is_not_found_however_late_it_is():
    pace = WritePace()
    written(pace, "honest", LEAST_RECORDS)
    assert pace.excess(100 * BEHIND_MS) is None


def test_who_wrote_half_or_less_of_what_is_late_is_not_found():
    pace = WritePace()
    for party in ("one", "two"):
        written(pace, party, 2 * LEAST_RECORDS)
    assert pace.excess(BEHIND_MS) is None
    written(pace, "two", 1)
    assert pace.excess(BEHIND_MS).party == "two"


def test_nobody_is_found_for_records_of_which_nobody_knows_whose_they_are():
    pace = WritePace()
    written(pace, "", 10 * LEAST_RECORDS)
    written(pace, "honest", 2 * LEAST_RECORDS)
    assert pace.excess(BEHIND_MS) is None


def test_a_worker_is_not_counted_for_the_jobs_of_others_nor_anybody_for_a_rejected_record():
    assert is_counted("/job/schedule", is_accepted=True)
    assert not is_counted("/job/schedule", is_accepted=False)
    for command in {JobClaim.COMMAND, JobComplete.COMMAND, JobYield.COMMAND, JobStart.COMMAND}:
        assert not is_counted(command, is_accepted=True)


def test_large_records_count_as_several():
    pace = WritePace()
    written(pace, "large", LEAST_RECORDS // 8, size=40_000)
    assert pace.excess(BEHIND_MS).records > LEAST_RECORDS


def test_records_that_wait_for_many_jobs_count_as_several():
    pace = WritePace()
    written(pace, "wide", LEAST_RECORDS // 8, links=256)
    assert pace.excess(BEHIND_MS).records > LEAST_RECORDS
    written(pace, "narrow", LEAST_RECORDS // 8, links=4)
    assert pace.excess(BEHIND_MS).party == "wide"


@pytest.mark.parametrize(
    "took_ms, is_found",
    [
        ((900, 900, 900), True),
        ((10, 10, 900), False),
        ((900, 900), False),
        ((SLOW_MS, SLOW_MS, SLOW_MS), False),
        ((900, 900, 900, 10, 10, 10, 10), False),
    ],
)
def test_a_node_that_reads_in_time_finds_who_makes_its_own_writes_slow(took_ms, is_found):
    pace = WritePace()
    pace.note("other", AT_MS, 100)
    written(pace, "bulk", 10 * LEAST_RECORDS)
    for number, one_ms in enumerate(took_ms):
        pace.wrote(AT_MS + number, AT_MS + number + one_ms)
    assert (pace.excess(0) is not None) is is_found


def slow(pace: WritePace, took_ms: int, writes: int = 9):
    for number in range(writes):
        pace.wrote(AT_MS + number, AT_MS + number + took_ms)


@pytest.mark.parametrize("before_ms, is_found", [(OTHERS_MS - 1, True), (OTHERS_MS, False)])
def test_nobody_is_found_for_slow_writes_while_nobody_else_uses_the_mesh(before_ms, is_found):
    pace = WritePace()
    pace.note("other", AT_MS - before_ms, 100)
    for number in range(2 * LEAST_RECORDS):
        pace.note("bulk", AT_MS - number % 2, 100)
        pace.note("", AT_MS - number % 2, 100) if number % 3 == 0 else None
    pace.note("bulk", AT_MS, 100)
    slow(pace, 900)
    assert (pace.excess(0) is not None) is is_found
    assert pace.excess(BEHIND_MS).party == "bulk", "if it is behind, it is for whoever reads"


@pytest.mark.parametrize(
    "calm_ms, took_ms, is_found",
    [(2, 300, True), (60, 300, True), (200, 700, False), (200, 900, True), (1_000, 3_000, False)],
)
def test_on_a_slow_disk_it_takes_longer_until_writes_count_as_slow(calm_ms, took_ms, is_found):
    pace = WritePace()
    pace.note("other", AT_MS, 100)
    slow(pace, calm_ms, writes=40)
    written(pace, "bulk", 10 * LEAST_RECORDS)
    slow(pace, took_ms, writes=100)
    assert (pace.excess(0) is not None) is is_found


def test_on_a_slow_engine_few_records_are_many():
    """It takes only so many, and all others wait behind those that one party sends at once."""
    pace = WritePace()
    pace.note("other", AT_MS, 100)
    written(pace, "flood", SHARED_RECORDS)
    slow(pace, 900)
    assert pace.excess(0) is None
    written(pace, "flood", 1)
    assert pace.excess(0).party == "flood"


@pytest.mark.parametrize("has_others", [True, False])
def test_while_others_use_the_mesh_a_node_that_is_a_little_behind_is_enough(has_others):
    pace = WritePace()
    if has_others:
        pace.note("other", AT_MS, 100)
    written(pace, "flood", SHARED_RECORDS + 1)
    looks = [pace.excess(LATE_MS) is not None for _ in range(LATE_LOOKS + 2)]
    assert looks == [False] * (LATE_LOOKS - 1) + [has_others] * 3
    assert pace.excess(LATE_MS - 1) is None
    assert pace.excess(LATE_MS) is None, "one look is a coincidence"


def test_writes_that_are_slow_because_of_a_flood_do_not_become_the_usual():
    pace = WritePace()
    pace.note("other", AT_MS, 100)
    written(pace, "flood", 10 * LEAST_RECORDS)
    slow(pace, 300, writes=200)
    slow(pace, 1_000, writes=200)
    assert pace.excess(0).party == "flood"
    pace.pause_s("flood", AT_MS // 1000)
    slow(pace, 1_000, writes=200)  # what was written before the pause is still worked off
    pace.note("other", AT_MS, 100)
    written(pace, "flood", 10 * LEAST_RECORDS)
    slow(pace, 1_000, writes=200)
    assert pace.excess(0).party == "flood"


def test_writes_that_were_slow_before_the_window_are_forgotten():
    pace = WritePace()
    written(pace, "bulk", 10 * LEAST_RECORDS)
    for number in range(9):
        pace.wrote(AT_MS + number, AT_MS + number + 900)
    pace.note("other", AT_MS, 100)
    assert pace.excess(0).party == "bulk"
    for number in range(3):
        pace.wrote(AT_MS + 2 * WINDOW_MS + number, AT_MS + 2 * WINDOW_MS + number + 10)
    assert pace.excess(0) is None


def test_what_was_written_before_the_window_is_forgotten():
    pace = WritePace()
    written(pace, "bulk", 10 * LEAST_RECORDS)
    pace.note("other", AT_MS + 2 * WINDOW_MS, 100)
    assert pace.excess(BEHIND_MS) is None


def test_each_pause_is_twice_as_long_until_there_was_none_for_a_while():
    pace, now_s = WritePace(), 0
    lengths = []
    for _ in range(7):
        lengths.append(pace.pause_s("bulk", now_s))
        now_s += lengths[-1] + 1
    assert lengths == [10, 20, 40, 80, 160, 320, 320]
    assert pace.pause_s("other", now_s) == write_pace.PAUSE_S
    assert pace.pause_s("bulk", now_s + 320 + write_pace.FORGIVEN_S) == write_pace.PAUSE_S


@pytest.mark.parametrize("parties", [1, 50])
def test_a_pause_begins_the_count_anew(parties):
    pace = WritePace()
    for number in range(parties):
        written(pace, f"p{number}", 2 * LEAST_RECORDS)
    pace.pause_s("p0", 0)
    assert pace.excess(BEHIND_MS) is None
