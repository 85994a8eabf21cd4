"""A program on a machine that is not always online."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from antiphon import CircuitOpen, Mesh
from antiphon.errors import Misconfigured, Rejected, Unavailable
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting.dev_mesh import development
from antiphon.sdk.outbox.namespace import LocalOutbox
from tests.patience import PATIENCE_S
from tests.runtime.meshes import eventually

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
