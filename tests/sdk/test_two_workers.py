"""Two workers of one mesh object: each has its own artifacts, its own room and its own clock."""

import asyncio

from antiphon import After, CallOptions, JobContext, JobFailed, Mesh
from antiphon.core.manifest import author
from antiphon.runtime.executors.executor import Assignment
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.executors.handlers import Handlers
from antiphon.runtime.identity.host_clock import SystemClock
from tests.patience import PATIENCE_S

KIND = "value.large"
MEGABYTE = 1 << 20
ONCE = CallOptions(attempts=1)


def a_mesh() -> Mesh:
    """Its task ends only when two of its jobs run at once: each on a worker with one slot."""
    mesh, running, both = Mesh.open(engine="memory"), [], asyncio.Event()

    @mesh.task(KIND)
    async def large(text: str, times: int) -> str:
        running.append(text)
        if len(running) == 2:
            both.set()
        await both.wait()
        return text * times

    return mesh


async def ending_of(handle) -> str:
    try:
        return f"{len(await handle.result(timeout=PATIENCE_S))} bytes"
    except JobFailed as failed:
        return str(failed)


async def test_each_of_two_workers_keeps_to_its_own_limit_of_values(monkeypatch):
    mesh = a_mesh()
    async with mesh, mesh.worker(slots=1):
        monkeypatch.setenv("ANTIPHON_VALUE_MB", "1")
        async with mesh.worker(slots=1):
            monkeypatch.delenv("ANTIPHON_VALUE_MB")
            calls = [await mesh.submit(KIND, one, 2 * MEGABYTE, options=ONCE) for one in "ab"]
            refused, returned = sorted([await ending_of(one) for one in calls], key=len)[::-1]
    assert returned == "2097152 bytes"
    assert "the limit here is 1,048,576" in refused


async def test_arguments_that_one_worker_holds_take_no_room_of_the_other(monkeypatch):
    monkeypatch.setenv("ANTIPHON_VALUE_MB", "1")
    mesh = a_mesh()
    async with mesh, mesh.worker(slots=1), mesh.worker(slots=1):
        calls = [await mesh.submit(KIND, one * 700_000, 0, options=ONCE) for one in "ab"]
        assert [await ending_of(one) for one in calls] == ["0 bytes", "0 bytes"]


async def test_what_a_job_asks_for_is_dated_by_the_clock_of_its_own_worker():
    handlers, dated = Handlers(), []

    class Stopped(SystemClock):
        def __init__(self, now_ms: int) -> None:
            self._now_ms = now_ms

        def now_ms(self) -> int:
            return self._now_ms

    class Planned:
        kind, text = KIND, b"{}"

        def schedule(self, _where, *, nonce, now_ms):
            dated.append(now_ms)
            return KIND, nonce.nonce * 2

    async def parent(ctx: JobContext) -> None:
        raise After([Planned()])

    handlers.register(KIND, parent)
    content = author({"command": [f"@{KIND}"], "args": [call_text([], {})], "timeout": 30})
    given = Assignment(kind=KIND, job_id="0" * 64, fence="f" * 16, attempt=1, manifest=content)
    workers = [handlers.executors(wall=Stopped(now_ms)) for now_ms in (1_000, 2_000)]
    for executors in workers:
        await executors.find(KIND, content).run(given)
    assert dated == [1_000, 2_000]
