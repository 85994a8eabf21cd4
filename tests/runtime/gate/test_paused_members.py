"""A member that writes faster than the mesh reads is paused, is told so, and goes on afterwards."""

import asyncio
import re
from contextlib import suppress

import pytest
from msgspec import structs

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.authority.rules import Rules
from antiphon.core.policy import write_pace
from antiphon.core.record.verdict import Verdict
from antiphon.errors import RateLimited, Unavailable
from antiphon.runtime.gate.pace_watch import LOOK_EVERY_S, PaceWatch
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import APPLY_SLICE, Applied
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from tests.patience import PATIENCE_S
from tests.runtime.meshes import a_mesh, call, eventually


@pytest.fixture
def always_behind(monkeypatch):
    """A node that is always late: it need not be overrun for the test."""
    monkeypatch.setattr(write_pace, "BEHIND_MS", -60_000)
    monkeypatch.setattr(write_pace, "LEAST_RECORDS", 40)
    monkeypatch.setattr(write_pace, "PAUSE_S", 5)


async def joined(directory, alias: str) -> StateDirectory:
    home = StateDirectory(directory / alias)
    terms = Terms(can=("schedule",), kinds=(f"{alias}.*",), alias=alias)
    ticket = hosted_mesh.invite(StateDirectory(directory / "owner"), terms)
    await hosted_mesh.redeem(home, ticket, alias=alias)
    return home


async def goes_on(mesh: Mesh) -> None:
    """Submit until that works again."""
    while True:
        with suppress(Unavailable):
            await mesh.submit("busy.work", "more")
            return


async def writes(mesh: Mesh) -> None:
    """Submit until cancelled, and so be paused again whenever a pause is over."""
    while True:
        await goes_on(mesh)


async def refused(home: StateDirectory) -> str:
    """What a connection is told while its machine is paused; tried until it is."""
    while True:
        try:
            async with Mesh.open(home=home.path):
                pass
        except RateLimited as told:
            return str(told)


@pytest.mark.nats
async def test_the_one_that_writes_too_much_is_paused_and_told_and_nobody_else(
    tmp_path, always_behind, caplog
):
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with (
        hosted_mesh.found_and_host(tmp_path / "owner", name="paced", listen=listen) as hosted,
        Mesh.open(home=tmp_path / "owner") as owner,
        owner.node() as node,
        hosted.gate(node),
        asyncio.timeout(PATIENCE_S),
    ):
        busy, quiet = await joined(tmp_path, "busy"), await joined(tmp_path, "quiet")
        party = busy.signer("machine").did

        def aside() -> list[str]:
            items = node.replica.attention.newest(limit=9)
            return [item.reason for item in items if item.whose == party]

        async with Mesh.open(home=busy.path) as many, Mesh.open(home=quiet.path) as one:
            writing = asyncio.create_task(writes(many))
            (reason,) = await eventually(aside)
            assert re.match(r"paused for \d+ s: it wrote ", reason)
            await eventually(lambda: "this machine is paused for" in caplog.text)
            assert re.search(r"this machine is paused for \d+ s: it wrote ", await refused(busy))
            await one.submit("quiet.work", 1)
            writing.cancel()
            await asyncio.wait([writing])
            await goes_on(many)
        await eventually(lambda: not aside())


class Told:
    """A gate that only notes whom it is told to pause."""

    def __init__(self) -> None:
        self.paused: list[str] = []

    def is_member(self, _node: str) -> bool:
        return True

    async def pause(self, node: str, _length_s: int, _why: str) -> None:
        self.paused.append(node)


@pytest.mark.virtual_time
@pytest.mark.parametrize("took_effect", [True, False])
async def test_nobody_is_paused_for_records_that_took_no_effect(always_behind, took_effect):
    """Anybody who may read a record can send it again, with its author's signature."""
    async with a_mesh("memory", Rules(authority="open")) as mesh:
        node, member = await mesh.node(), (await mesh.connection()).session
        applied: list[Applied] = []
        node.watchers.append(applied.append)
        for number in range(60):
            await call(member, number)
        await node.reached((await member.log.last()).seq)
        gate = Told()
        watch = PaceWatch(node, gate)
        for one in applied:
            verdict = one.verdict if took_effect else Verdict.PREV
            watch.applied(structs.replace(one, verdict=verdict))
        looking = asyncio.ensure_future(watch.run())
        await asyncio.sleep(4 * LOOK_EVERY_S)
        looking.cancel()
        assert gate.paused == ([member.author.did] if took_effect else [])


@pytest.mark.virtual_time
async def test_nobody_is_spared_because_the_coordinator_writes_as_much_for_it(always_behind):
    async with a_mesh("memory", Rules(authority="open")) as mesh:
        owner = await mesh.connection(mesh.owner)
        node, member = await mesh.node(connection=owner), (await mesh.connection()).session
        gate, unknown = Told(), (("test.work", "0" * 64),)
        looking = asyncio.ensure_future(PaceWatch(node, gate).run())
        for number in range(60):  # the coordinator cancels each of them
            await call(member, number, after=unknown)
        await eventually(lambda: gate.paused)
        looking.cancel()
        assert set(gate.paused) == {member.author.did}


class Slow(Told):
    """A gate during whose pause still more is written."""

    def __init__(self, write, applied) -> None:
        super().__init__()
        self.write, self.applied = write, applied
        self.applied_meanwhile: list[int] = []

    async def pause(self, node: str, length_s: int, why: str) -> None:
        before = self.applied()
        await self.write()
        self.applied_meanwhile.append(self.applied() - before)
        await super().pause(node, length_s, why)


@pytest.mark.exact_times
@pytest.mark.virtual_time
async def test_a_node_stands_still_while_a_member_is_being_paused(always_behind):
    """Or what it is late with would keep the pause from being carried out."""
    async with a_mesh("memory", Rules(authority="open")) as mesh:
        node, member = await mesh.node(), (await mesh.connection()).session
        seen, numbers = [], iter(range(1_000))
        node.watchers.append(seen.append)

        async def write():
            for _ in range(60):
                await call(member, next(numbers))

        gate = Slow(write, lambda: len(seen))
        looking = asyncio.ensure_future(PaceWatch(node, gate).run())
        await asyncio.sleep(0)
        await write()
        await eventually(lambda: gate.paused)
        assert gate.applied_meanwhile[0] <= APPLY_SLICE
        await node.reached((await member.log.last()).seq)
        looking.cancel()


@pytest.mark.virtual_time
async def test_a_node_does_not_stand_still_for_long_whatever_it_is_held_for():
    async with a_mesh("memory", Rules(authority="open")) as mesh:
        node, member = await mesh.node(), (await mesh.connection()).session
        with node.held():
            for number in range(60):
                await call(member, number)
            await node.reached((await member.log.last()).seq)
