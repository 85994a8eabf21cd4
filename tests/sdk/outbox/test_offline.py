"""A program on a machine that is not always online."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon import CircuitOpen, Mesh, gather
from antiphon.errors import Misconfigured, Rejected, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.outbox.outbox_item import OutboxItem, Submit
from antiphon.runtime.outbox.outbox_store import OutboxStore
from antiphon.sdk.connection import connection_outbox
from antiphon.sdk.hosting.dev_mesh import development
from antiphon.sdk.outbox.namespace import LocalOutbox
from tests.patience import PATIENCE_S
from tests.runtime.meshes import eventually
from tests.runtime.outbox.test_outbox_sender import body

pytestmark = [pytest.mark.nats, pytest.mark.req("P12", "S16")]


class Host:
    """A development mesh whose server goes away and comes back."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self._running = None

    async def up(self) -> None:
        self._running = development(self.directory, name="train")
        await self._running.__aenter__()

    async def down(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.__aexit__(None, None, None)


@asynccontextmanager
async def a_host(tmp_path):
    host = Host(tmp_path / "home")
    await host.up()
    try:
        yield host
    finally:
        await host.down()


def laptop(host: Host) -> Mesh:
    return Mesh.open(home=host.directory, offline=True)


async def test_jobs_and_messages_of_a_program_without_a_connection_arrive_in_order(tmp_path):
    async with a_host(tmp_path) as host:
        await host.down()
        async with laptop(host) as mesh:
            me = mesh.messages.address
            first = await mesh.submit("test.work", 1)
            second = await mesh.submit("test.work", 2, options={"after": [first]})
            sent = await mesh.messages.send(me, "from the train")
            assert first.is_tentative
            assert second.is_tentative
            for late in (first.result(timeout=0), gather(first, timeout=0)):
                with pytest.raises(TimeoutError, match="waits in this machine's outbox"):
                    await late
            assert mesh.outbox.keeps(sent)
            with pytest.raises(Unavailable):
                await mesh.jobs()
            await host.up()
            states = await first.state(), await second.state()
            assert [str(one.state) for one in states] == ["pending", "waiting"]
            assert not first.is_tentative
            async for message in mesh.messages.inbox(wait=PATIENCE_S):
                assert (message.id, message.payload) == (sent, "from the train")
                await message.ack()
                break
            assert [one.state for one in mesh.outbox.items()] == ["held"] * 3
            mesh.outbox.told(mesh.outbox.items())
            assert mesh.outbox.items() == []


async def test_what_one_process_left_behind_the_next_one_sends(tmp_path):
    async with a_host(tmp_path) as host:
        await host.down()
        async with laptop(host) as mesh:
            kept = await mesh.submit("test.work", 1)
        await host.up()
        async with Mesh.open(home=host.directory) as mesh:
            await eventually(lambda: not mesh.outbox.keeps(kept.id))
            assert (await mesh.job("test.work", kept.id).state()).id == kept.id


async def test_a_connected_program_sends_what_others_leave_later(tmp_path, monkeypatch):
    monkeypatch.setattr(connection_outbox, "OTHERS_S", 0.1)
    async with a_host(tmp_path) as host, Mesh.open(home=host.directory) as mesh:
        store = OutboxStore(StateDirectory(host.directory).path / connection_outbox.FOLDER)
        store.put(left_behind())
        await eventually(lambda: [one.state for one in store.items()] == ["held"])
        assert str((await mesh.job(*left_behind().job()).state()).state) == "pending"


def left_behind() -> OutboxItem:
    return OutboxItem(what=Submit(body(1)), author="did:key:another", hlc=(1, 0), at_ms=2**60)


async def test_a_program_that_loses_its_connection_goes_on_with_the_outbox(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_BREAKER_FAILURES", "1")
    async with a_host(tmp_path) as host, laptop(host) as mesh:
        assert not (await mesh.submit("test.work", 0)).is_tentative
        await host.down()
        kept = [await mesh.submit("test.work", number) for number in (1, 2)]
        assert all(one.is_tentative for one in kept)
        with pytest.raises(CircuitOpen):
            await mesh.lock("report").take()
        await host.up()
        for one in kept:
            assert str((await one.state()).state) == "pending"
        assert not (await mesh.submit("test.work", 3)).is_tentative


async def test_who_does_not_ask_for_it_is_told_by_an_error_as_before(tmp_path):
    async with a_host(tmp_path) as host:
        async with Mesh.open(home=host.directory) as mesh:
            await host.down()
            with pytest.raises(Unavailable):
                await mesh.submit("test.work", 1)
            assert mesh.outbox.items() == []
        with pytest.raises(Unavailable):
            await Mesh.open(home=host.directory).__aenter__()


async def test_what_the_mesh_refuses_is_told_to_whoever_waits_for_it(tmp_path):
    async with a_host(tmp_path) as host:
        await host.down()
        async with laptop(host) as mesh:
            handle = await mesh.submit("test.work", 1, options={"lease": 10**9})
            await host.up()
            with pytest.raises(Rejected, match=r"dropped: .*lease"):
                await handle.result(timeout=PATIENCE_S)


def test_a_person_decides_about_an_entry_without_a_connection(tmp_path):
    async def go():
        async with a_host(tmp_path) as host:
            await host.down()
            async with laptop(host) as mesh:
                return [await mesh.submit("test.work", number) for number in (1, 2)], host

    (first, second), host = asyncio.run(go())
    local = LocalOutbox.of(StateDirectory(host.directory))
    assert [one.what.name for one in local.items()] == [first.id, second.id]
    assert local.drop(first.id[:8]).what.name == first.id
    assert local.retry(second.id[:8]).state == "waiting"
    with pytest.raises(Rejected, match="no item"):
        local.drop(first.id[:8])
    assert [one.what.name for one in local.items()] == [second.id]


async def test_a_mesh_in_memory_has_no_outbox():
    async with Mesh.open(engine="memory", offline=True) as mesh:
        assert not (await mesh.submit("test.work", 1)).is_tentative
        with pytest.raises(Misconfigured, match="memory"):
            mesh.outbox.items()


async def test_a_document_waits_and_goes_by_what_it_was_made_from(tmp_path):
    async with a_host(tmp_path) as host:
        async with laptop(host) as mesh:
            notes = mesh.memory["notes.team"]
            for key in ("plan", "list"):
                assert (await notes.put(key, "first")).outcome == "written"
            assert await notes.keys() == ["list", "plan"]  # this machine's replica has them now
        await host.down()
        async with laptop(host) as mesh:
            notes = mesh.memory["notes.team"]
            known = await notes.get("plan")
            assert known.value == "first"
            assert (await notes.put("plan", "hasty", base=known)).outcome == "tentative"
            result = await notes.put("plan", "from the train", base=known)
            assert (result.outcome, "waits" in result.why) == ("tentative", True)
            assert (await notes.put("list", "mine", base=known)).outcome == "tentative"
            with pytest.raises(Unavailable):
                await notes.update("plan", str.upper)
            assert len(mesh.outbox.items()) == 2, "the second value took the place of the first"
            await host.up()
            await eventually(lambda: not any(one.is_tentative for one in mesh.outbox.items()))
            ends = {one.what.name: one for one in mesh.outbox.items()}
            assert ends["notes.team/plan"].state == "held"
            dropped = ends["notes.team/list"]
            assert (dropped.state, "wrote it meanwhile" in dropped.why) == ("dropped", True)
            assert (await notes.get("plan")).value == "from the train"
            assert (await notes.get("list")).value == "first"


async def test_a_lock_is_released_later_and_never_taken_later(tmp_path):
    async with a_host(tmp_path) as host, laptop(host) as mesh:
        lock = await mesh.lock("report", ttl="1h").take()
        await host.down()
        await lock.release()
        (kept,) = mesh.outbox.items()
        assert kept.what.words == "release the lock report in main"
        with pytest.raises(Unavailable) as told:
            await mesh.locks.try_take("report")
        assert "does not wait in the outbox" in told.value.hint
        await host.up()
        await eventually(lambda: [one.state for one in mesh.outbox.items()] == ["held"])
        assert await mesh.locks.try_take("report") is not None


async def test_a_worker_without_a_connection_says_why_it_cannot_claim(tmp_path):
    async with a_host(tmp_path) as host:
        await host.down()
        mesh = laptop(host)

        @mesh.task("test.work")
        async def work(number: int) -> int:
            return number

        async with mesh:
            with pytest.raises(Unavailable) as told:
                await mesh.worker().__aenter__()
            assert "claiming one does not wait in the outbox" in told.value.hint


async def test_lists_and_graphs_of_jobs_wait_as_one_does(tmp_path):
    async with a_host(tmp_path) as host:
        await host.down()
        mesh = laptop(host)

        @mesh.task("test.work")
        async def work(number: int) -> int:
            return number

        async with mesh:
            many = await mesh.submit_many(mesh.bind("test.work", number) for number in range(3))
            async with mesh.graph() as graph:
                first = graph.add(work, 10)
                second = graph.add(work, first)
            handles = [*many, graph.handle(first), graph.handle(second)]
            assert all(one.is_tentative for one in handles)
            await host.up()
            states = [str((await one.state()).state) for one in handles]
            assert states == ["pending"] * 4 + ["waiting"]


async def test_large_values_and_files_wait_as_small_ones_do(tmp_path):
    large, file = "x" * 100_000, tmp_path / "report.txt"
    file.write_text("y" * 100_000)
    async with a_host(tmp_path) as host:
        await host.down()
        async with laptop(host) as mesh:
            job = await mesh.submit("test.work", large)
            put = await mesh.memory["notes.team"].put("plan", large, base=0)
            assert (job.is_tentative, put.outcome) == (True, "tentative")
            kept = await mesh.artifacts.keep(file)
            words = [one.what.words.split()[0] for one in mesh.outbox.items()]
            assert words == ["submit", "put", "store"]
            await host.up()
            await eventually(lambda: {one.state for one in mesh.outbox.items()} == {"held"})
        other = Mesh.open(home=host.directory)

        @other.task("test.work")
        async def work(text: str) -> int:
            return len(text)

        async with other, other.worker():
            assert await other.job("test.work", job.id).result(timeout=PATIENCE_S) == len(large)
            assert (await other.memory["notes.team"].get("plan")).value == large
            await other.artifacts.fetch(kept, tmp_path / "fetched.txt")
            assert (tmp_path / "fetched.txt").read_text() == file.read_text()
