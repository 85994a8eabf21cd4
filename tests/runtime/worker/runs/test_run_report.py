"""Each run is one line in its worker's log, and a failure is told to whoever waits for the job."""

import asyncio
import json
import re
import traceback

import pytest
import structlog

from antiphon import CallOptions, JobFailed, Mesh, RetryLater, telemetry
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobComplete, Retry
from antiphon.runtime.caller.submission import failure, wait_for_end
from antiphon.runtime.executors.handlers import HandlerOptions
from antiphon.runtime.replica.replica_jobs import job_records
from tests.patience import PATIENCE_S
from tests.runtime import spawned
from tests.runtime.meshes import a_mesh, call

OPEN = Rules(authority="open")
ONCE = CallOptions(attempts=1)
FIELDS = {"kind", "job", "caller", "attempt", "seconds", "outcome", "event", "log_level"}


async def inner(token: str) -> None:
    raise ValueError("no luck")


async def fails(count: int) -> None:
    await inner(token="hunter" + "2" * 8)


def fails_in_thread(count: int) -> None:
    raise ValueError("no luck")


async def failed(mesh, function, how=None) -> tuple[JobFailed, list[dict]]:
    """What a submitter is told, and what the worker logs."""
    with structlog.testing.capture_logs() as logged:
        worker = await mesh.worker(function, how=how)
        job = await call(worker.session, *([1] if how is None else []), retry=Retry(attempts=1))
        ended = await wait_for_end(worker.session, job.kind, job.id)
        await worker_is_idle(worker)
    return failure(ended), [event for event in logged if event["event"] == "job_ran"]


async def worker_is_idle(worker) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while worker.busy:
            await asyncio.sleep(0.01)


@pytest.mark.virtual_time
async def test_every_run_is_one_line_with_its_kind_job_caller_attempt_seconds_and_outcome():
    tries = []

    async def at_second_try(count: int) -> int:
        tries.append(count)
        await asyncio.sleep(2)
        if len(tries) == 1:
            raise RetryLater(1)
        return count

    async with a_mesh("memory", OPEN) as mesh:
        with structlog.testing.capture_logs() as logged:
            worker = await mesh.worker(at_second_try)
            await mesh.node()
            job = await call(worker.session, 7)
            await wait_for_end(worker.session, job.kind, job.id)
            await worker_is_idle(worker)
    first, last = [event for event in logged if event["event"] == "job_ran"]
    assert set(last) == FIELDS
    assert set(first) == FIELDS | {"problem", telemetry.TRACEBACK}
    assert first["outcome"] == "retries"
    assert (last["outcome"], last["log_level"]) == ("succeeded", "info")
    assert (last["kind"], last["job"], last["caller"]) == (job.kind, job.id, worker.did)
    assert first["seconds"] == last["seconds"] == 2
    assert first["log_level"] == "warning"


@pytest.mark.parametrize("function", [fails, fails_in_thread])
async def test_a_failure_has_its_type_message_attempts_and_traceback_and_no_values(function):
    async with a_mesh("memory", OPEN) as mesh:
        error, lines = await failed(mesh, function)
    assert (error.error_type, error.error_message) == ("ValueError", "no luck")
    assert (error.attempts, error.reason, len(error.job_id)) == (1, "failed", 64)
    assert 'raise ValueError("no luck")' in error.traceback
    assert "hunter" + "2" * 8 not in error.traceback
    assert error.traceback in "".join(traceback.format_exception(error))
    assert lines[0][telemetry.TRACEBACK] == error.traceback
    assert lines[0]["problem"] == "ValueError: no luck"


async def test_what_a_worker_says_of_a_failure_cannot_move_the_callers_cursor():
    async def writes_on_terminals(count: int) -> None:
        raise ValueError("\x1b[2J\x1b]0;owned\x07\nsecond line")

    async with a_mesh("memory", OPEN) as mesh:
        error, _ = await failed(mesh, writes_on_terminals)
    printed = "".join(traceback.format_exception(error))
    assert not {"\x1b", "\x07"} & set(printed)
    assert printed.count("\nsecond line") == 2, "the message, and the traceback below it"


@pytest.mark.processes
async def test_a_failure_in_a_process_has_its_traceback_too():
    async with a_mesh("memory", OPEN) as mesh:
        how = HandlerOptions(run_in="process")
        error, lines = await failed(mesh, spawned.missing_file, how)
    assert "in missing_file" in error.traceback
    assert error.traceback.endswith("FileNotFoundError: no such file")
    assert lines[0][telemetry.TRACEBACK] == error.traceback


@pytest.mark.virtual_time
async def test_a_rule_keeps_tracebacks_off_the_log_and_the_worker_still_shows_them():
    async with a_mesh("memory", Rules(authority="open", tracebacks=False)) as mesh:
        node = await mesh.node(caretaking=False)
        error, lines = await failed(mesh, fails)
        stored = [
            node.session.open(one.record).op
            for one in job_records(node.replica, error.kind, error.job_id)
        ]
    assert (error.error_type, error.traceback) == ("ValueError", "")
    assert [op.body.error.traceback for op in stored if isinstance(op, JobComplete)] == [""]
    assert 'raise ValueError("no luck")' in lines[0][telemetry.TRACEBACK]


async def test_the_lines_are_text_on_a_terminal_and_json_otherwise(capsys, monkeypatch):
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.fail")
    async def fail() -> None:
        raise ValueError("no luck")

    async def said(*, is_terminal: bool) -> str:
        structlog.reset_defaults()
        monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
        monkeypatch.setenv("NO_COLOR", "1")
        telemetry.configure("info", "auto")
        async with mesh, mesh.worker():
            with pytest.raises(JobFailed):
                await (await mesh.submit("example.fail", options=ONCE)).result(PATIENCE_S)
        return capsys.readouterr().err

    line = json.loads((await said(is_terminal=False)).splitlines()[0])
    text = await said(is_terminal=True)
    assert (line["event"], line["outcome"]) == ("job_ran", "failed")
    assert line["exception"].endswith("ValueError: no luck")
    first, *others = text.splitlines()
    assert re.search(r"kind=example.fail job=[0-9a-f]{8} caller=\w{8} attempt=1 seconds=", first)
    assert '    raise ValueError("no luck")' in others
