"""The witness and the reckoning count right: what is planted is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.core.reasons import Reason
from antiphon.ports import Record
from bench.lives import KIND, Lives
from chaos.reckoning import Reckoner
from chaos.witness import Mark, Reader, Tally, Witness

ROOT = Path(__file__).parents[2]
START_MS = 1_700_000_000_000


def marks(*lines):
    return [Mark(at_ns, pid, what, job, fence) for at_ns, pid, what, job, fence in lines]


# --- the witness --------------------------------------------------------------------------------


def test_what_handlers_write_is_read_back_in_order(tmp_path):
    witness, reader = Witness(tmp_path / "w"), Reader(tmp_path / "w")
    witness.note("ready")
    with witness.running("j", "f1"):
        pass
    assert [mark.what for mark in reader.new()] == ["ready", "begin", "end"]
    with pytest.raises(RuntimeError), witness.running("j", "f2"):
        raise RuntimeError
    assert [(mark.what, mark.fence) for mark in reader.new()] == [
        ("begin", "f2"),
        ("dropped", "f2"),
    ]
    witness.close()
    reader.close()


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "w"
    reader = Reader(path)
    witness = Witness(path)
    witness.note("begin", job="j", fence="f")
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert reader.new() == []
    with path.open("ab") as more:
        more.write(whole[20:])
    assert [mark.job for mark in reader.new()] == ["j"]
    witness.close()
    reader.close()


MANY_LINES = """
import sys
from pathlib import Path
from chaos.witness import Witness
witness = Witness(Path(sys.argv[1]))
for number in range(200):
    witness.note("begin", job=f"{number:064d}", fence="f" * 16)
"""


def test_lines_of_many_processes_do_not_mix(tmp_path):
    path = tmp_path / "w"
    command = [sys.executable, "-c", MANY_LINES, str(path)]
    writers = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    for writer in writers:
        assert writer.wait() == 0
    reader = Reader(path)
    found = reader.new()
    reader.close()
    assert len(found) == 600
    assert {mark.pid for mark in found} == {writer.pid for writer in writers}


def test_executions_that_touch_in_time_overlap_and_those_that_follow_do_not():
    after = marks((1, 7, "begin", "j", "f1"), (5, 7, "end", "j", "f1"), (6, 8, "begin", "j", "f2"))
    assert Tally(after).overlapped() == set()
    during = marks((1, 7, "begin", "j", "f1"), (4, 8, "begin", "j", "f2"), (5, 7, "end", "j", "f1"))
    assert Tally(during).overlapped() == {"j"}


def test_the_dead_run_nothing_any_more():
    told = marks(
        (1, 7, "ready", "", ""),
        (2, 7, "begin", "j", "f1"),
        (3, 7, "dead", "", ""),
        (4, 8, "begin", "j", "f2"),
        (5, 8, "end", "j", "f2"),
    )
    tally = Tally(told)
    assert tally.overlapped() == set()
    assert tally.busy == set()
    assert tally.ready == set()
    assert tally.whole() == {("j", "f2")}
    assert len(tally.executions) == 2


def test_two_runs_under_one_fence_are_found():
    told = marks(
        (1, 7, "begin", "j", "f1"),
        (2, 7, "end", "j", "f1"),
        (3, 8, "begin", "j", "f1"),
        (4, 8, "begin", "k", "f1"),
    )
    assert Tally(told).twice_under_one_fence() == {"j"}


# --- the reckoning --------------------------------------------------------------------------------


class Log:
    """A log of whole job lives, and a reckoner over it."""

    def __init__(self, count):
        lives = Lives(START_MS)
        self.mesh = lives.mesh
        self.records = [
            Record(one.seq, one.wall_ms * 1_000_000, one.subject, one.payload)
            for one in lives.records(count)
        ]

    def of_type(self, name):
        return [one for one in self.records if f'"type":"{name}"'.encode() in one.payload]

    def reckon(self, records=None):
        reckoner = Reckoner(self.mesh)
        for record in records or self.records:
            reckoner.take(record, Reason.OK)
        return reckoner


def key(record):
    return KIND, record.subject[-64:]


def test_a_log_without_faults_adds_up():
    log = Log(900)
    reckoner = log.reckon()
    ended = {key(record) for record in log.of_type("job.complete")}
    assert reckoner.lost(ended) == []
    assert reckoner.accepted_twice == []
    assert reckoner.broken == []
    assert reckoner.succeeded == len(ended) > 100
    assert set(reckoner.called) == {key(record) for record in log.of_type("job.schedule")}


def test_a_job_that_was_promised_and_never_ended_is_lost():
    log = Log(900)
    victim = log.of_type("job.complete")[-1]
    reckoner = log.reckon([record for record in log.records if record is not victim])
    assert reckoner.lost([key(victim)]) == [key(victim)]


def test_a_job_that_is_not_on_the_log_at_all_is_lost():
    nowhere = (KIND, "0" * 64)
    assert Log(30).reckon().lost([nowhere]) == [nowhere]


def test_a_second_accepted_result_is_found():
    log = Log(900)
    victim = log.of_type("job.complete")[0]
    again = Record(10_000, victim.stamp_ns + 1, victim.subject, victim.payload)
    reckoner = log.reckon([*log.records, again])
    assert reckoner.accepted_twice == [key(victim)]
    assert "one_result" in {violation.law for violation in reckoner.broken}


def test_a_rejected_second_result_is_none():
    log = Log(900)
    victim = log.of_type("job.complete")[0]
    reckoner = log.reckon()
    again = Record(10_000, victim.stamp_ns + 1, victim.subject, victim.payload)
    reckoner.take(again, Reason.FINISHED)
    assert reckoner.accepted_twice == []


def test_a_result_that_no_execution_stands_behind_is_found():
    log = Log(900)
    victim, *others = log.of_type("job.complete")
    reckoner = log.reckon()
    fences = {one: reckoner.accepted[key(one)][0].fence for one in others}
    seen = [
        mark
        for one, fence in fences.items()
        for mark in marks((1, 7, "begin", key(one)[1], fence), (2, 7, "end", key(one)[1], fence))
    ]
    assert reckoner.unwitnessed(Tally(seen)) == [key(victim)]
