"""Forked children: each has its own loop, connection and key; the parent notices nothing."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from antiphon import BlockingMesh, Mesh
from antiphon.errors import Held
from antiphon.sdk.blocking.loop_thread import entered, run
from antiphon.sdk.hosting.dev_mesh import development
from tests.forked import in_child
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes


def test_a_child_of_a_mesh_that_was_not_used_yet_opens_its_own():
    mesh = Mesh.open(engine="memory").blocking()
    children = [in_child(lambda: mesh.did) for _ in range(2)]
    assert len({mesh.did, *children}) == 3
    mesh.close()


def test_a_child_of_a_used_mesh_opens_it_anew_and_old_handles_say_so():
    mesh = Mesh.open(engine="memory").blocking()

    @mesh.task("example.add")
    def add(a: int, b: int) -> int:
        return a + b

    def in_the_child() -> str:
        with mesh.worker():
            return f"{add.submit(2, 3).result(PATIENCE_S)} {mesh.did}"

    with mesh, mesh.worker():
        handle = add.submit(1, 1)
        said, did = in_child(in_the_child).split()
        assert (said, did != mesh.did) == ("5", True)
        stale = in_child(handle.result)
        assert stale.startswith(f"Forked: the handle of job {handle.id[:8]} was made before this")
        assert handle.result(PATIENCE_S) == 2
        assert in_child(mesh.close) == "None", "what a child closes is its own"
        assert add.submit(2, 2).result(PATIENCE_S) == 4


def test_a_child_may_leave_the_parents_block():
    mesh = Mesh.open(engine="memory").blocking()
    ours = os.getpid()

    def leave() -> str:
        mesh.__exit__()
        return "left"

    with mesh:
        assert in_child(leave) == "left"
        assert os.getpid() == ours
        assert mesh.did


def test_a_fork_while_threads_hold_every_lock_leaves_the_child_usable():
    mesh = Mesh.open(engine="memory").blocking()
    forked = threading.Event()

    async def hold() -> None:
        forked.wait()

    with mesh._lock:
        blocked = threading.Thread(target=run, args=(hold(),))
        blocked.start()
        said = in_child(lambda: mesh.did)
        forked.set()
        blocked.join()
    assert said.startswith("did:key:")


def test_no_child_inherits_a_lock_that_the_loop_holds():
    """As it holds that of the program's log while it writes a line."""
    lock, is_over = threading.Lock(), threading.Event()

    async def write() -> None:
        while not is_over.is_set():
            with lock:
                time.sleep(0.01)
            await asyncio.sleep(0)

    writing = threading.Thread(target=run, args=(write(),))
    writing.start()
    try:
        assert {in_child(lambda: lock.acquire(timeout=0)) for _ in range(8)} == {"True"}
    finally:
        is_over.set()
        writing.join()


def test_a_fork_that_is_interrupted_does_not_stop_the_loop(monkeypatch):
    """As by Ctrl-C while it waits for the loop to rest. Python reports it, and forks."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    main, is_in_time, is_busy = threading.get_ident(), [], threading.Event()

    def interrupt(_number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name != "_before_fork":
            frame = frame.f_back
        is_in_time.append(frame is not None)
        if frame is not None:
            raise KeyboardInterrupt

    async def keep_busy() -> None:
        is_busy.set()
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for _ in range(9):
            is_busy.clear()
            busy = threading.Thread(target=run, args=(keep_busy(),))
            busy.start()
            is_busy.wait()
            assert in_child(lambda: "forked") == "forked"
            busy.join(PATIENCE_S)
            assert not busy.is_alive(), "the loop stands still"
            if any(is_in_time):
                break
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert any(is_in_time)
    run(asyncio.sleep(0))


@pytest.fixture
def home(tmp_path) -> Iterator[Path]:
    """A development mesh on a real server."""
    with entered(development(tmp_path / ".antiphon", name="test")) as dev:
        yield dev.value.home.path


def authors_and_times(mesh: BlockingMesh) -> list[tuple[str, object]]:
    """The author and the timestamp of every record on the log."""

    async def read() -> list[tuple[str, object]]:
        session = mesh.unblocked.connection.session
        page = await session.log.read(0, limit=10_000)
        opened = [session.open(record) for record in page.records]
        return [(one.op.author, one.op.hlc) for one in opened if one.op is not None]

    return run(read())


@pytest.mark.nats
def test_children_sign_with_keys_of_their_own_on_a_real_server(home):
    mesh = Mesh.open(home=home).blocking()

    @mesh.task("example.add")
    def add(a: int, b: int) -> int:
        return a + b

    def submit_twenty() -> str:
        for number in range(20):
            add.submit(number, number)
        return mesh.alias

    with mesh:
        before = add.submit(1, 1)
        children = [in_child(submit_twenty) for _ in range(3)]
        assert submit_twenty() == "client-1"
        assert children == ["client-2"] * 3, "a child's key is free again when it has ended"
        signed = authors_and_times(mesh)
        assert len(set(signed)) == len(signed), "no timestamp was signed twice"
        assert len({author for author, _ in signed}) >= 3
        with mesh.worker():
            assert before.result(PATIENCE_S) == 2


@pytest.mark.nats
def test_a_child_cannot_have_the_one_key_that_was_named(home):
    with Mesh.open(home=home, key="web").blocking() as mesh:

        def hint_in_child() -> str:
            with pytest.raises(Held, match="another process is using the key 'web'") as held:
                return mesh.did
            return held.value.hint

        assert "leave out key=" in in_child(hint_in_child)
