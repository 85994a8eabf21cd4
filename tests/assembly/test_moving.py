"""A mesh that moves to another address: its members follow, without new tickets."""

import asyncio
import shutil
import socket
from contextlib import AsyncExitStack

import pytest

from antiphon import Mesh
from antiphon.assembly import backups, moving, restoration
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import AntiphonError, Malformed
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.gate import addresses
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from tests.assembly.backed_up import a_mesh_to_back_up, hosted_again
from tests.assembly.test_restoration import keys_of
from tests.runtime.meshes import eventually

pytestmark = pytest.mark.nats
TERMS = Terms(can=("read", "schedule", "claim"), kinds=("team.*",), alias="laptop")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def moved_to(directory, keys, port):
    """The mesh at another name and port, as on another machine."""
    home = StateDirectory(directory / "elsewhere")
    listen = hosted_mesh.Listen(host="127.0.0.1", port=port, names=("localhost",))
    done = await restoration.restore(FolderStore(directory / "backup"), home, keys, listen=listen)
    assert done.mesh.engine == f"nats://localhost:{port}"
    return hosted_again(home.path, hosted_mesh.host(home.path))


async def test_a_running_worker_follows_an_announced_move(tmp_path, monkeypatch):
    monkeypatch.setattr(addresses, "EVERY_S", 0.05)
    member, port = StateDirectory(tmp_path / "laptop"), free_port()
    async with AsyncExitStack() as outer:
        async with a_mesh_to_back_up(tmp_path) as at:
            await hosted_mesh.redeem(member, hosted_mesh.invite(at.home, TERMS), alias="laptop")
            laptop = await outer.enter_async_context(Mesh.open(home=member.path))

            @laptop.task("team.double")
            async def double(number: int) -> int:
                return 2 * number

            await outer.enter_async_context(laptop.worker())
            assert await (await at.owner.submit("team.double", 4)).result("60s") == 8
            moving.announce_address(at.home, f"localhost:{port}")
            old = at.home.mesh().engine
            await eventually(lambda: member.mesh().engine == f"nats://localhost:{port},{old}")
            home, keys = at.home, keys_of(at.home)
        # It has stopped: nothing is lost.
        await backups.back_up(home, FolderStore(tmp_path / "backup"))
        shutil.rmtree(tmp_path / "owner")
        async with await moved_to(tmp_path, keys, port) as at:
            assert await (await at.owner.submit("team.double", 21)).result("120s") == 42
            async with Mesh.open(home=member.path) as mesh:
                assert await (await mesh.submit("team.double", 5)).result("60s") == 10


async def test_a_machine_that_heard_nothing_is_told_by_hand(tmp_path):
    member, port = StateDirectory(tmp_path / "laptop"), free_port()
    async with a_mesh_to_back_up(tmp_path) as at:
        await hosted_mesh.redeem(member, hosted_mesh.invite(at.home, TERMS), alias="laptop")
        await backups.back_up(at.home, FolderStore(tmp_path / "backup"))
        keys = keys_of(at.home)
    shutil.rmtree(tmp_path / "owner")
    async with (
        await moved_to(tmp_path, keys, port),
        a_mesh_to_back_up(tmp_path / "stranger") as stranger,
    ):
        before = member.mesh()
        for wrong in (stranger.home.mesh().engine, f"127.0.0.1:{free_port()}"):
            with pytest.raises(AntiphonError):
                await moving.follow_address(member, wrong)
        with pytest.raises(Malformed):
            await moving.follow_address(member, "http://host/path")
        assert member.mesh() == before
        await moving.follow_address(member, f"localhost:{port}")
        async with Mesh.open(home=member.path) as mesh:
            await mesh.submit("team.add", 1, 2)


async def test_only_the_owner_can_announce_an_address(tmp_path, monkeypatch):
    monkeypatch.setattr(addresses, "EVERY_S", 0.02)
    member = StateDirectory(tmp_path / "laptop")
    async with a_mesh_to_back_up(tmp_path) as at:
        await hosted_mesh.redeem(member, hosted_mesh.invite(at.home, TERMS), alias="laptop")
        before, mesh = member.mesh(), at.home.mesh().mesh
        async with Mesh.open(home=member.path):
            forged = at.home.signer("client-1")
            addresses.announce(at.home.gate, mesh, "nats://evil:1", forged, now_ms=2**40)
            await asyncio.sleep(0.3)
            assert member.mesh() == before
            moving.announce_address(at.home, "good:4222")
            await eventually(lambda: member.mesh().engine.startswith("nats://good:4222,"))
