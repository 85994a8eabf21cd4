"""The execution journal and its tally count right: what is planted is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.audit.execution_journal import (
    ExecutionTally,
    JournalEvent,
    JournalReader,
    JournalWriter,
)

ROOT = Path(__file__).parents[3]


def events(*lines):
    return [JournalEvent(at_ns, pid, what, job, fence) for at_ns, pid, what, job, fence in lines]


def test_what_handlers_write_is_read_back_in_order(tmp_path):
    journal, reader = JournalWriter(tmp_path / "w"), JournalReader(tmp_path / "w")
    journal.note("ready")
    with journal.running("j", "f1"):
        pass
    assert [event.what for event in reader.read_new()] == ["ready", "begin", "end"]
    with pytest.raises(RuntimeError), journal.running("j", "f2"):
        raise RuntimeError
    assert [(event.what, event.fence) for event in reader.read_new()] == [
        ("begin", "f2"),
        ("aborted", "f2"),
    ]
    journal.close()
    reader.close()


def test_half_a_line_is_not_read_before_its_end(tmp_path):
    path = tmp_path / "w"
    reader = JournalReader(path)
    journal = JournalWriter(path)
    journal.note("begin", job_id="j", fence="f")
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert reader.read_new() == []
    with path.open("ab") as more:
        more.write(whole[20:])
    assert [event.job_id for event in reader.read_new()] == ["j"]
    journal.close()
    reader.close()


MANY_LINES = """
import sys
from pathlib import Path
from chaos.audit.execution_journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]))
for number in range(200):
    journal.note("begin", job_id=f"{number:064d}", fence="f" * 16)
"""


def test_lines_of_many_processes_do_not_mix(tmp_path):
    path = tmp_path / "w"
    command = [sys.executable, "-c", MANY_LINES, str(path)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    for writer in writers:
        assert writer.wait() == 0
    reader = JournalReader(path)
    found = reader.read_new()
    reader.close()
    assert len(found) == 600
    assert {event.pid for event in found} == {writer.pid for writer in writers}


def test_executions_that_touch_in_time_overlap_and_those_that_follow_do_not():
    after = events((1, 7, "begin", "j", "f1"), (5, 7, "end", "j", "f1"), (6, 8, "begin", "j", "f2"))
    assert ExecutionTally(after).overlapped() == set()
    during = events(
        (1, 7, "begin", "j", "f1"), (4, 8, "begin", "j", "f2"), (5, 7, "end", "j", "f1")
    )
    assert ExecutionTally(during).overlapped() == {"j"}


def test_the_dead_run_nothing_any_more():
    told = events(
        (1, 7, "ready", "", ""),
        (2, 7, "begin", "j", "f1"),
        (3, 7, "dead", "", ""),
        (4, 8, "begin", "j", "f2"),
        (5, 8, "end", "j", "f2"),
    )
    tally = ExecutionTally(told)
    assert tally.overlapped() == set()
    assert tally.busy == set()
    assert tally.ready == set()
    assert tally.finished() == {("j", "f2")}
    assert len(tally.executions) == 2


def test_two_runs_under_one_fence_are_found():
    told = events(
        (1, 7, "begin", "j", "f1"),
        (2, 7, "end", "j", "f1"),
        (3, 8, "begin", "j", "f1"),
        (4, 8, "begin", "k", "f1"),
    )
    assert ExecutionTally(told).jobs_with_reused_fence() == {"j"}
