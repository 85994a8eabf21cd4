"""The namespaces of a blocking mesh: every call waits; `with` and `for` need no `async`."""

import threading
from collections.abc import Iterator

import pytest

from antiphon import BlockingMesh, Conflict, Held, Mesh


@pytest.fixture
def mesh() -> Iterator[BlockingMesh]:
    with Mesh.open(engine="memory").blocking() as opened:
        yield opened


def test_documents_are_written_read_and_watched(mesh):
    notes = mesh.memory["notes.team"]
    assert notes.name == "notes.team"
    assert notes.get("plan") is None
    assert notes.put("plan", {"steps": 4}).outcome == "written"
    assert notes.get("plan").value == {"steps": 4}
    with notes.watch("plan") as changes:
        notes.update("plan", lambda plan: plan | {"steps": 5})
        assert next(changes).value == {"steps": 5}
    with pytest.raises(Conflict, match="nothing was written"):
        notes.put("plan", 1)


def test_a_lock_that_is_free_is_taken_and_one_that_is_held_is_not_waited_for(mesh):
    with mesh.locks.try_take("report") as lock:
        assert lock.is_held
        assert [(one.key, one.fence) for one in mesh.locks.list()] == [("report", lock.fence)]
        assert mesh.locks.try_take("report", agent="other") is None
        with pytest.raises(Held), mesh.lock("report", wait=0, agent="other"):
            pass
    assert mesh.locks.list() == []


def test_a_lock_can_be_held_without_a_block(mesh):
    lock = mesh.locks.hold("report")
    lock.take()
    lock.check()
    lock.release()
    assert not lock.is_held


def test_a_file_goes_in_and_out(mesh, tmp_path):
    (tmp_path / "given").write_bytes(b"\0" * 100_000)
    kept = mesh.artifacts.keep(tmp_path / "given")
    mesh.artifacts.fetch(kept, tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"\0" * 100_000


def test_what_is_read_without_waiting_is_a_plain_attribute(mesh):
    assert mesh.authority.rules.attempts == 3
    assert mesh.messages.address == f"{mesh.did}/main"
    assert "try_take" in dir(mesh.locks)
    with pytest.raises(AttributeError):
        _ = mesh.locks.colour


def test_any_thread_may_use_a_namespace(mesh):
    notes = mesh.memory["notes.team"]
    threads = [threading.Thread(target=notes.put, args=(f"k{n}", n)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert notes.keys() == [f"k{n}" for n in range(8)]


def test_what_has_no_waiting_form_can_be_waited_for(mesh):
    assert mesh.run(mesh.unblocked.jobs()) == []
