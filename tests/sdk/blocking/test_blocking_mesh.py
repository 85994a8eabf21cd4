"""The mesh without `await`: the same names, results and errors, from any thread."""

import asyncio
import inspect
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon import (
    BlockingHandle,
    BlockingMesh,
    BlockingTask,
    JobContext,
    JobFailed,
    JobHandle,
    Mesh,
    Misconfigured,
    Rejected,
    State,
    Task,
)
from tests.patience import PATIENCE_S


def a_mesh() -> BlockingMesh:
    return Mesh.open(engine="memory").blocking()


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_names_are_those_of_the_async_classes():
    only_async = {
        "blocking",
        "connect",  # as `open`
        "connection",
        "home",
        "node",  # a full node is a program of its own: antiphon node
        "open",
        "replica",
        "watching",
    }
    only_blocking = {"close", "forget", "run", "unblocked", "wrap"}
    only_blocking |= {"as_completed", "gather"}  # functions of the module, in the async SDK
    only_blocking |= {"map_calls", "mesh"}  # what BlockingTask.map uses; the async mesh
    assert public(Mesh) - public(BlockingMesh) == only_async
    assert public(BlockingMesh) - public(Mesh) == only_blocking - {"mesh"}
    assert public(JobHandle) - public(BlockingHandle) == {"of", "session", "tentative"}
    of_instances = {"id", "kind"}  # not in dir() of the async class
    assert public(BlockingHandle) - public(JobHandle) == {"unblocked"} | of_instances
    assert public(Task) <= public(BlockingTask)
    for blocking, waiting in ((BlockingMesh, Mesh), (BlockingHandle, JobHandle)):
        for name in public(blocking) & public(waiting):
            assert not inspect.iscoroutinefunction(getattr(blocking, name)), name


def test_a_task_is_submitted_run_and_answered():
    mesh = a_mesh()

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task
    def shout(text: str, *, times: int = 1) -> str:
        return text.upper() * times

    assert shout("ho") == "HO"
    with mesh, mesh.worker(slots=2) as worker:
        assert worker.kinds == ["example.add", "shout"]
        assert add.submit(2, 3).result(timeout=PATIENCE_S) == 5
        first = add.options(priority="high", timeout="1m").submit(2, 3)
        assert first.state().priority == "high"
        assert add.job(first.id).result(PATIENCE_S) == 5
        assert shout.submit("ho", times=2).result(PATIENCE_S) == "HOHO"
        handle = mesh.submit("example.add", 1, b=1)
        assert handle.end(PATIENCE_S).job.outcome == "succeeded"
        assert handle.state().state is State.SUCCEEDED
        assert [line.op for line in handle.story()][-1] == "job.complete"
        assert [output.name for output in handle.outputs()] == ["result"]
        assert mesh.job("example.add", handle.id).result(PATIENCE_S) == 2
        assert {card.role for card in mesh.presence.roll_call(wait_s=0.5)} == {"node", "worker"}
        assert mesh.authority.rules.attempts == 3
        assert worker.done == 4
        assert worker.did != mesh.did


def test_tasks_of_the_async_mesh_are_usable():
    declared = Mesh.open(engine="memory")

    @declared.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    mesh = declared.blocking()
    assert declared.blocking() is mesh
    with mesh, mesh.worker():
        assert mesh.wrap(add).submit(2, 3).result(PATIENCE_S) == 5
    with a_mesh() as another:
        assert another.wrap(add).submit(2, 3).kind == "example.add"


def test_errors_have_the_same_types_and_words():
    mesh = a_mesh()

    @mesh.task("example.fail", attempts=1)
    def fail(text: str) -> None:
        raise ValueError(text)

    with mesh:
        waiting = fail.submit("no luck")
        with pytest.raises(TimeoutError, match=r"has not ended in 0\.01 s: it is pending"):
            waiting.result(timeout=0.01)
        with pytest.raises(TypeError):
            fail.submit()  # type: ignore[call-arg]
        with pytest.raises(Rejected, match="has not ended") as early:
            waiting.outputs()
        assert early.value.reason == "not_ended"
        with mesh.worker(), pytest.raises(JobFailed, match="ValueError: no luck"):
            waiting.result(PATIENCE_S)
        again = waiting.retry()
        assert again.is_new
        assert waiting.links().retried_as == again.id
        assert again.cancel("enough").outcome == "cancelled"


def test_without_with_it_connects_at_its_first_use_and_a_closed_one_says_so():
    mesh = a_mesh()
    did = mesh.did
    handle = mesh.submit("example.add", 2, 3)
    mesh.close()
    mesh.close()
    with pytest.raises(Misconfigured, match="this mesh is closed") as closed:
        mesh.submit("example.add", 2, 3)
    assert "with mesh:" in closed.value.hint
    with mesh:
        assert mesh.did != did
        with pytest.raises(Misconfigured, match="a mesh that is closed") as stale:
            handle.state()
        assert f"mesh.job('example.add', '{handle.id}')" in stale.value.hint


def test_sixteen_threads_share_one_connection():
    mesh = a_mesh()
    begun = threading.Barrier(16)

    @mesh.task("example.double")
    async def double(a: int) -> int:
        return 2 * a

    def submit(number: int) -> tuple[str, BlockingHandle[int]]:
        begun.wait()
        return mesh.did, double.submit(number)

    with ThreadPoolExecutor(16) as threads:
        submitted = list(threads.map(submit, range(16)))
        with mesh.worker():
            waits = threads.map(lambda one: one[1].result(PATIENCE_S), submitted)
            assert list(waits) == [2 * number for number in range(16)]
    mesh.close()
    assert len({did for did, _ in submitted}) == 1


def test_a_handler_may_submit_and_wait_in_a_thread_but_not_on_the_loop():
    mesh = a_mesh()

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    @mesh.task("example.nested", attempts=1)
    def nested() -> int:
        return add.submit(2, 3).result(PATIENCE_S)

    @mesh.task("example.wrong", attempts=1)
    async def wrong() -> int:
        return add.submit(2, 3).result(PATIENCE_S)

    with mesh, mesh.worker():
        assert nested.submit().result(PATIENCE_S) == 5
        with pytest.raises(JobFailed, match="a blocking call inside the event loop"):
            wrong.submit().result(PATIENCE_S)


def test_an_interrupt_ends_the_wait_and_leaves_the_mesh_usable():
    mesh, waits, may_end = a_mesh(), threading.Event(), threading.Event()

    @mesh.task("example.long")
    def long() -> None:
        waits.wait()
        os.kill(os.getpid(), signal.SIGINT)
        may_end.wait()

    with mesh, mesh.worker():
        handle = long.submit()

        def wait() -> None:
            waits.set()
            handle.result()

        with pytest.raises(KeyboardInterrupt):
            wait()
        assert handle.state().state is State.RUNNING
        may_end.set()
        assert handle.result(PATIENCE_S) is None


def test_files_are_kept_and_fetched(tmp_path):
    (tmp_path / "in.txt").write_text("hello")
    with a_mesh() as mesh:
        kept = mesh.artifacts.keep(tmp_path / "in.txt")
        mesh.artifacts.fetch(kept, tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "hello"


def test_progress_is_heard_while_the_job_runs():
    mesh, heard = a_mesh(), threading.Event()

    @mesh.task("example.slow")
    def slow(ctx: JobContext) -> None:
        while not heard.wait(0.01):
            ctx.progress(0.5, "half")

    with mesh, mesh.worker():
        handle = slow.submit()
        with handle.listen() as words:
            said = next(words)
            heard.set()
        handle.result(PATIENCE_S)
    assert (said.done, said.note) == (0.5, "half")


async def test_the_async_mesh_and_its_facade_are_usable_side_by_side():
    mesh = Mesh.open(engine="memory")

    @mesh.task("example.add")
    async def add(a: int, b: int) -> int:
        return a + b

    def in_a_thread() -> int:
        with mesh.blocking() as blocking, blocking.worker():
            return blocking.wrap(add).submit(2, 3).result(PATIENCE_S)

    async with mesh, mesh.worker():
        assert await asyncio.to_thread(in_a_thread) == 5
        assert await (await add.submit(2, 2)).result(PATIENCE_S) == 4


def test_many_jobs_are_submitted_and_taken_as_they_end():
    mesh = a_mesh()

    @mesh.task("example.double")
    def double(number: int) -> int:
        return 2 * number

    with mesh, mesh.worker():
        assert sorted(handle.result() for handle in double.map(range(20), limit=3)) == [
            2 * number for number in range(20)
        ]
        handles = double.submit_many([1, 2, 3])
        assert [handle.index for handle in handles] == [0, 1, 2]
        assert mesh.gather(*handles, timeout=PATIENCE_S) == [2, 4, 6]
        more = mesh.submit_many([double.bind(4), mesh.bind("example.double", 5)])
        ended = mesh.as_completed(more, timeout=PATIENCE_S)
        assert {handle.result() for handle in ended} == {8, 10}
