"""The final check counts right: what is planted on a log is found."""

from antiphon.core.record.verdict import Verdict
from antiphon.ports import Record
from bench.signed_log import KIND, SignedLog
from chaos.audit.execution_journal import ExecutionTally, JournalEvent
from chaos.audit.final_check import FinalCheck

START_MS = 1_700_000_000_000


class Log:
    """A log of whole jobs, and a final check of it."""

    def __init__(self, count):
        signed = SignedLog(START_MS)
        self.mesh = signed.mesh
        self.records = [
            Record(one.seq, one.wall_ms * 1_000_000, one.subject, one.payload)
            for one in signed.records(count)
        ]

    def of_type(self, name):
        return [one for one in self.records if f'"type":"{name}"'.encode() in one.payload]

    def check(self, records=None):
        check = FinalCheck(self.mesh)
        for record in records or self.records:
            check.add(record, Verdict.OK)
        return check


def key(record):
    return KIND, record.subject[-64:]


def test_a_log_without_faults_adds_up():
    log = Log(900)
    check = log.check()
    ended = {key(record) for record in log.of_type("job.complete")}
    assert check.lost(ended) == []
    assert check.accepted_twice == []
    assert check.violations == []
    assert check.succeeded == len(ended) > 100
    assert set(check.called) == {key(record) for record in log.of_type("job.schedule")}


def test_a_job_that_was_promised_and_never_ended_is_lost():
    log = Log(900)
    victim = log.of_type("job.complete")[-1]
    check = log.check([record for record in log.records if record is not victim])
    assert check.lost([key(victim)]) == [key(victim)]


def test_a_job_that_is_not_on_the_log_at_all_is_lost():
    nowhere = (KIND, "0" * 64)
    assert Log(30).check().lost([nowhere]) == [nowhere]


def test_a_second_accepted_result_is_found():
    log = Log(900)
    victim = log.of_type("job.complete")[0]
    again = Record(10_000, victim.stamp_ns + 1, victim.subject, victim.payload)
    check = log.check([*log.records, again])
    assert check.accepted_twice == [key(victim)]
    assert "one_result" in {violation.law for violation in check.violations}


def test_a_rejected_second_result_is_none():
    log = Log(900)
    victim = log.of_type("job.complete")[0]
    check = log.check()
    again = Record(10_000, victim.stamp_ns + 1, victim.subject, victim.payload)
    check.add(again, Verdict.FINISHED)
    assert check.accepted_twice == []


def test_a_result_that_no_execution_stands_behind_is_found():
    log = Log(900)
    victim, *others = log.of_type("job.complete")
    check = log.check()
    fences = {one: check.accepted[key(one)][0].fence for one in others}
    seen = [
        JournalEvent(at_ns, 7, what, key(one)[1], fence)
        for one, fence in fences.items()
        for at_ns, what in ((1, "begin"), (2, "end"))
    ]
    assert check.without_execution(ExecutionTally(seen)) == [key(victim)]
