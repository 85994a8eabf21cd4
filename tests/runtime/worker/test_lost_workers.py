"""A job that takes its workers with it: which ones it says, and that it is not run for ever."""

import asyncio
import re

import pytest

from antiphon import JobFailed
from antiphon.core.history.tenures import lost_words
from antiphon.core.record.ids import short_node
from antiphon.runtime.worker.tenure import Tenure
from antiphon.sdk.dashboard.live_output import LiveOutputs
from antiphon.sdk.dashboard.views import job_view
from antiphon.testing.tested_mesh import TestedMesh


@pytest.fixture
def mesh():
    tested = TestedMesh()
    yield tested
    tested.close()


def failure_of(mesh, task) -> JobFailed:
    with pytest.raises(JobFailed) as failed:
        mesh.call(task)
    return failed.value


NAMED = r"\w+ \(\d\d:\d\d UTC\)"


def test_by_default_a_job_takes_two_workers_and_then_fails_until_a_person_retries_it(mesh):
    @mesh.task("lost.poison")
    async def poison() -> None:
        mesh.kill_worker()

    failed = failure_of(mesh, poison)
    assert (failed.reason, failed.error_type) == ("failed", "WorkerLost")
    assert len(mesh.calls(poison)) == 2
    said = rf"2 workers were lost while running it: {NAMED}, {NAMED}; it is not run again until"
    assert re.match(said, failed.error_message)
    assert "antiphon retry" in failed.hint

    async def retried() -> None:
        again = await mesh.program.job(failed.job_id).retry()
        with pytest.raises(JobFailed, match="2 workers were lost"):
            await again.result()

    mesh.run(retried())
    assert len(mesh.calls(poison)) == 4


def test_who_chooses_a_number_of_attempts_chooses_how_many_workers_it_may_take(mesh):
    @mesh.task("lost.stubborn", attempts=4)
    async def stubborn() -> None:
        mesh.kill_worker()

    failed = failure_of(mesh, stubborn)
    assert failed.reason == "exhausted"
    assert len(mesh.calls(stubborn)) == 4
    assert "gave up after 4 attempts; 4 workers were lost while running it: " in failed.message


@pytest.mark.parametrize("attempts", [2, 3])
def test_wherever_a_person_looks_the_lost_workers_are_named(mesh, attempts):
    """Whether the expiry of the last attempt ended it or a worker that did not run it again."""

    @mesh.task("lost.poison", attempts=None if attempts == 3 else attempts)
    async def poison() -> None:
        mesh.kill_worker()

    failed = failure_of(mesh, poison)
    assert failed.reason == ("failed" if attempts == 3 else "exhausted")

    async def looked_at() -> dict[str, str]:
        program = mesh.program
        handle = program.job("lost.poison", failed.job_id)
        told, _ = await handle.explain(wait_s=0)
        (item,) = await program.queries.attention()
        view = await job_view(program, failed.job_id, LiveOutputs(program))
        return {
            "error": failed.message,
            "why": lost_words(told.lost, short_node),
            "attention": item.reason,
            "page": view.sentence,
        }

    for place, words in mesh.run(looked_at()).items():
        said = re.findall(rf"workers were lost while running it: {NAMED}, {NAMED}", words)
        assert len(said) == 1, (place, words)


def test_an_error_is_no_lost_worker(mesh):
    @mesh.task("lost.once")
    async def once() -> None:
        if len(mesh.calls(once)) == 1:
            mesh.kill_worker()
        else:
            raise ValueError("and then an error")

    failed = failure_of(mesh, once)
    assert (failed.reason, failed.error_type) == ("failed", "ValueError")
    assert len(mesh.calls(once)) == 3


def test_one_that_loses_a_worker_once_has_its_result(mesh):
    @mesh.task("lost.unlucky")
    async def unlucky() -> int:
        if len(mesh.calls(unlucky)) == 1:
            mesh.kill_worker()
        return 5

    assert mesh.call(unlucky) == 5


def test_a_worker_that_lets_leases_run_out_and_lives_is_not_lost(mesh, monkeypatch):
    async def renews_nothing(*_args, **_kwargs) -> None:
        pass

    @mesh.task("lost.slow", lease=5)
    async def slow() -> str:
        await asyncio.sleep(60 if len(mesh.calls(slow)) < 3 else 0)
        return "done"

    monkeypatch.setattr(Tenure, "_renew", renews_nothing)
    assert mesh.call(slow) == "done"
    assert len(mesh.calls(slow)) == 3
