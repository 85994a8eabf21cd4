"""How a tenure ends after a failure: another attempt, or the end of the job."""

import pytest

from antiphon.core.families.jobs.ops import CompleteBody, Failure, Retry, YieldBody
from antiphon.core.families.jobs.state import Job, State
from antiphon.core.policy import attempt_end
from antiphon.core.policy.attempt_end import Fault
from antiphon.core.record.codec import MAX_INTEGER

FAILURE = Failure(name="FileNotFoundError", message="no such file")
LINEAGE = ("FileNotFoundError", "OSError", "Exception", "BaseException")


def a_job(*, attempts: int = 0, attempts_max: int = 3) -> Job:
    return Job(
        kind="test.work",
        id="0" * 64,
        state=State.RUNNING,
        scheduler="",
        scheduled_seq=1,
        scheduled_ms=0,
        hlc=(1, 0),
        hlc_author="",
        priority="normal",
        start_by_ms=1,
        start_window_ms=1,
        attempts=attempts,
        attempts_max=attempts_max,
        lease_ms=1,
        lease_ms_max=1,
        fence="0" * 16,
    )


def end_of(fault: Fault | None, *, retry: Retry | None = None, **job: int) -> attempt_end.Ending:
    return attempt_end.after(a_job(**job), retry or Retry(), fault=fault, chance=0.5)


def test_without_a_fault_the_job_succeeds():
    assert end_of(None).status == "succeeded"


@pytest.mark.req("M22")
@pytest.mark.parametrize(
    "attempts, attempts_max, is_over",
    [(0, 3, False), (1, 3, False), (2, 3, True), (0, 1, True)],
)
def test_a_failure_is_given_back_while_attempts_are_left(attempts, attempts_max, is_over):
    end = end_of(Fault(failure=FAILURE), attempts=attempts, attempts_max=attempts_max)
    assert end.error == FAILURE
    if is_over:
        assert (type(end), end.status) == (CompleteBody, "failed")
    else:
        assert (type(end), end.reason) == (YieldBody, "error")


@pytest.mark.parametrize(
    "give_up_on, is_over",
    [
        ((), False),
        (("FileNotFoundError",), True),
        (("OSError",), True),
        (("Exception",), True),
        (("ValueError",), False),
        (("ValueError", "OSError"), True),
        (("FileNotFound",), False),
    ],
)
def test_rules_name_an_error_or_anything_that_it_is_a_kind_of(give_up_on, is_over):
    fault = Fault(failure=FAILURE, lineage=LINEAGE)
    end = end_of(fault, retry=Retry(give_up_on=give_up_on))
    assert isinstance(end, CompleteBody) == is_over
    assert end.error.name == "FileNotFoundError", "the log keeps the error's own name"


def test_a_rule_matches_the_name_of_a_failure_that_has_no_lineage():
    end = end_of(Fault(failure=FAILURE), retry=Retry(give_up_on=("FileNotFoundError",)))
    assert isinstance(end, CompleteBody)


def test_a_final_failure_ends_the_job_whatever_is_left():
    end = end_of(Fault(failure=FAILURE, is_final=True), attempts_max=100)
    assert end.status == "failed"


@pytest.mark.parametrize("attempts, delay_ms", [(0, 15), (1, 25), (2, 45), (3, 50), (90, 50)])
def test_pauses_double_and_are_jittered_and_capped(attempts, delay_ms):
    retry = Retry(base_ms=10, cap_ms=50)
    end = end_of(Fault(failure=FAILURE), retry=retry, attempts=attempts, attempts_max=100)
    assert end.retry_after_ms == delay_ms


@pytest.mark.parametrize(
    "asked_ms, delay_ms",
    [(0, 0), (90_000, 90_000), (-5, 0), (MAX_INTEGER * 2, MAX_INTEGER)],
)
def test_a_wait_that_the_job_asked_for_stands_in_place_of_the_pause(asked_ms, delay_ms):
    end = end_of(Fault(failure=FAILURE, asked_ms=asked_ms))
    assert end.retry_after_ms == delay_ms


def test_asking_for_a_wait_makes_no_attempt_out_of_nothing():
    end = end_of(Fault(failure=FAILURE, asked_ms=1), attempts=2, attempts_max=3)
    assert end.status == "failed"
