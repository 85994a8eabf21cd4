"""What handlers print and log reaches whoever follows their job, by job, and is kept if asked."""

import asyncio
import logging
import sys
import threading

import pytest

from antiphon import CallOptions, JobFailed, Mesh
from antiphon.runtime.executors.printed_output import PrintingTo, passing_on_prints
from antiphon.runtime.worker.runs.kept_output import KEPT_BYTES, KeptOutput
from tests.patience import PATIENCE_S
from tests.runtime import spawned

ONCE = CallOptions(attempts=1)


async def heard_of(handle, go, *, until: bytes) -> dict[str, bytes]:
    """What a follower hears of a job, by stream, until a stream ends with some bytes."""
    found = {"stdout": b"", "stderr": b""}
    async with asyncio.timeout(PATIENCE_S), handle.listen() as words:
        go()
        async for one in words:
            if one.stream:
                assert one.at == len(found[one.stream])
                found[one.stream] += one.data
            if any(text.endswith(until) for text in found.values()):
                return found
    raise AssertionError(found)


async def test_a_follower_hears_what_a_coroutine_prints_and_logs():
    mesh, gate = Mesh.open(engine="memory"), asyncio.Event()
    own, handler = logging.getLogger("shop.of.a.test"), logging.StreamHandler()
    own.addHandler(handler)  # which takes hold of the stream before a worker runs

    @mesh.task("talk.loop")
    async def talk(name: str) -> None:
        await gate.wait()
        print("hello", name)
        await asyncio.create_task(later(name))

    async def later(name: str) -> None:
        own.warning("%s was late", name)
        sys.stderr.write("the end\n")

    async with mesh, mesh.worker():
        handle = await mesh.submit("talk.loop", "Ada")
        found = await heard_of(handle, gate.set, until=b"the end\n")
        await handle.result(PATIENCE_S)
    own.removeHandler(handler)
    assert found == {"stdout": b"hello Ada\n", "stderr": b"Ada was late\nthe end\n"}


async def test_jobs_that_run_at_once_are_told_apart_in_threads():
    mesh, together = Mesh.open(engine="memory"), threading.Barrier(3)

    @mesh.task("talk.thread")
    def talk(name: str) -> None:
        together.wait(PATIENCE_S)
        for number in range(20):
            print(name, number)
        print(name, "ends")

    async with mesh, mesh.worker():
        handles = [await mesh.submit("talk.thread", name) for name in "ab"]
        release = threading.Thread(target=together.wait, args=(PATIENCE_S,))
        heard = await asyncio.gather(
            heard_of(handles[0], release.start, until=b"ends\n"),
            heard_of(handles[1], lambda: None, until=b"ends\n"),
        )
        await asyncio.to_thread(release.join)
    for name, found in zip("ab", heard, strict=True):
        lines = [*(f"{name} {number}" for number in range(20)), f"{name} ends", ""]
        assert found["stdout"].decode().split("\n") == lines


@pytest.mark.processes
async def test_a_follower_hears_a_process_and_its_output_is_kept():
    mesh = Mesh.open(engine="memory")
    mesh.task("talk.process", run_in="process", keep_output=True)(spawned.talks)
    async with mesh, mesh.worker():
        handle = await mesh.submit("talk.process", 3)
        found = await heard_of(handle, lambda: None, until=b"no line break")
        ended = await handle.end(PATIENCE_S)
        kept = {one.name: one for one in ended.outputs}
    assert found["stdout"] == b"step 0\nstep 1\nstep 2\nno line break"
    assert found["stderr"] == b"logged\n"
    assert kept["output"].text == "step 0\nstep 1\nstep 2\nlogged\nno line break"
    assert kept["result"].text == "3"


async def test_what_a_failed_run_printed_is_kept_if_its_task_says_so():
    mesh = Mesh.open(engine="memory")

    @mesh.task("talk.fail", keep_output=True)
    async def fail() -> None:
        print("about to fail")
        raise ValueError("no luck")

    @mesh.task("talk.not-kept")
    async def not_kept() -> int:
        print("gone")
        return 1

    @mesh.task("talk.long", keep_output=True)
    def long() -> int:
        for _ in range(40):
            print("x" * 99_999)
        print("the end")
        return 1

    async with mesh, mesh.worker():
        handle = await mesh.submit("talk.fail", options=ONCE)
        with pytest.raises(JobFailed):
            await handle.result(PATIENCE_S)
        failed = await handle.outputs()
        other = await mesh.submit("talk.not-kept")
        await other.result(PATIENCE_S)
        quiet = await other.outputs()
        large = await mesh.submit("talk.long")
        await large.result(PATIENCE_S)
        (stored,) = [one for one in await large.outputs() if one.name == "output"]
        raw = await mesh.connection.artifacts.read(
            stored, job=large.job_key(), max_bytes=stored.size
        )
    ((name, text),) = [(one.name, one.text) for one in failed]
    assert name == "output"
    assert text.startswith("about to fail\n  File ")
    assert text.endswith('    raise ValueError("no luck")\nValueError: no luck\n')
    assert [one.name for one in quiet] == ["result"]
    assert KEPT_BYTES < stored.size < KEPT_BYTES + 200
    assert raw.startswith(b"... 2,")
    assert raw.endswith(b"the end\n")


def test_what_is_kept_is_bounded_while_the_run_goes_on():
    printed = KeptOutput()
    for _ in range(100):
        printed.add(b"y" * 100_000)
    assert len(printed._kept) <= KEPT_BYTES * 9 // 8
    head, _, rest = printed.text().partition("\n")
    assert head == f"... {10_000_000 - KEPT_BYTES:,} bytes before this were not kept"
    assert rest == "y" * KEPT_BYTES


def test_streams_and_log_handlers_are_as_before_once_no_worker_runs(capsys):
    before = sys.stdout, sys.stderr
    handler = logging.StreamHandler(sys.stderr)
    own = logging.getLogger("tee.of.a.test")
    own.addHandler(handler)
    own.propagate = False
    heard = []
    try:
        with passing_on_prints():
            with passing_on_prints(), PrintingTo(lambda *said: heard.append(said)):
                own.warning("inside")
            print("outside of any job")
            assert sys.stdout.isatty() is before[0].isatty()
        assert (sys.stdout, sys.stderr) == before
        assert handler.stream is before[1]
    finally:
        own.removeHandler(handler)
    assert heard == [("stderr", b"inside\n")]
    said = capsys.readouterr()
    assert (said.out, said.err) == ("outside of any job\n", "inside\n")
