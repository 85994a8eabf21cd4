"""Retry rules as a program writes them, and what a handler may wish for."""

import pytest

from antiphon import GiveUp, JobFailed, Mesh, Misconfigured, Retry, RetryLater
from antiphon.sdk.call_options import Scheduling
from tests.patience import PATIENCE_S

QUICK = Retry(attempts=4, base=0.01, cap=0.02, give_up_on=(OSError, "ZeroDivisionError"))


async def outcome_of(fail, *, retry=QUICK):
    """How often a handler that fails like this was tried, and what its job ended with."""
    mesh = Mesh.open(engine="memory")
    tries = []

    @mesh.task("example.shaky", retry=retry)
    async def shaky() -> int:
        tries.append(1)
        fail()
        return len(tries)

    async with mesh, mesh.worker():
        handle = await shaky.submit()
        with pytest.raises(JobFailed) as failed:
            await handle.result(timeout=PATIENCE_S)
        return len(tries), failed.value.message, await handle.lane()


def missing_file():
    raise FileNotFoundError("no such file")


async def test_an_error_is_tried_as_often_as_the_task_says():
    tries, message, _ = await outcome_of(lambda: int("x"))
    assert tries == 4
    assert "ValueError: invalid literal" in message


async def test_an_error_that_is_a_kind_of_a_named_one_is_not_tried_again():
    tries, message, _ = await outcome_of(missing_file)
    assert tries == 1
    assert "FileNotFoundError: no such file" in message
    assert (await outcome_of(lambda: 1 / 0))[0] == 1, "by name as well"


async def test_a_handler_that_gives_up_is_not_tried_again():
    def give_up():
        raise GiveUp("the order does not exist")

    tries, message, _ = await outcome_of(give_up)
    assert tries == 1
    assert "GiveUp: the order does not exist" in message


async def test_giving_up_because_of_an_error_keeps_the_errors_name():
    def give_up():
        try:
            int("x")
        except ValueError as error:
            raise GiveUp("the number is none") from error

    assert "ValueError: the number is none" in (await outcome_of(give_up))[1]


async def test_a_handler_may_ask_for_another_wait_than_the_rules_say():
    asked = []

    def later():
        asked.append(1)
        if len(asked) <= 3:
            raise RetryLater(0.05, "busy")
        int("x")

    tries, message, lane = await outcome_of(later, retry=Retry(attempts=1, base=30))
    assert tries == 4, "asking for another try is no attempt"
    assert "ValueError" in message
    assert (lane.lane.job.postponed, lane.lane.job.yields) == (3, 0)
    waits = [
        judged.opened.op.body.retry_after_ms
        for judged in lane.history
        if judged.opened.op.type_name() == "job.yield"
    ]
    assert waits == [50] * 3


async def test_the_meshs_rule_cuts_down_the_wait_that_a_handler_asks_for():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.patient", retry=Retry(attempts=2))
    async def patient() -> None:
        raise RetryLater(10 * 365 * 24 * 3600.0)

    async with mesh, mesh.worker():
        handle = await patient.submit()
        async with mesh.replica():
            while not (job := await handle.state()).postponed:
                pass
        longest_ms = mesh.connection.session.control.rules.retry_after_max_ms
        assert job.retry_after_ms - job.hlc[0] == longest_ms


@pytest.mark.parametrize("after_s", [-1, float("nan"), float("inf")])
def test_nobody_can_wait_for_that(after_s):
    with pytest.raises(ValueError, match="cannot wait"):
        RetryLater(after_s)


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"base": 4000}, {"cap": 4000}, {"give_up_on": ("X",) * 65}]
)
def test_rules_that_no_job_could_be_called_with_are_refused_at_once(fields):
    with pytest.raises(Misconfigured, match="retry options are not valid"):
        Retry(**fields)


def test_attempts_alone_can_be_said_shortly():
    options = {"attempts": 7, "retry": Retry(base=3)}
    from antiphon.core import manifest

    job = manifest.author({"command": ["true"], "args": [], "timeout": 1})
    body = Scheduling.of(options).body("example.any", job, now_ms=0)
    assert (body.retry.attempts, body.retry.base_ms) == (7, 3_000)
