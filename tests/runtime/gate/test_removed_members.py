"""A machine that loses a part of its rights goes on with the rest; one that loses all is told."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from antiphon.assembly.logins import log_in
from antiphon.core.authority.grant_terms import Terms
from antiphon.errors import EngineDenied
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from tests.job_scopes import works
from tests.patience import NEVER_S, PATIENCE_S
from tests.runtime.meshes import eventually

pytestmark = pytest.mark.nats


def claiming(*kinds: str, alias: str) -> Terms:
    return Terms(can=("claim",), kinds=kinds, alias=alias)


class Place:
    """A hosted mesh, and its owner."""

    def __init__(self, directory, owner: Mesh) -> None:
        self.directory, self.owner = directory, owner

    async def join(self, alias: str, *kinds: str) -> StateDirectory:
        """A machine that was invited once for each kind, so that each can be taken back."""
        home = StateDirectory(self.directory / alias)
        for kind in kinds:
            ticket = hosted_mesh.invite(
                StateDirectory(self.directory / "owner"), claiming(kind, alias=alias)
            )
            await hosted_mesh.redeem(home, ticket, alias=alias)
        return home

    async def take_back(self, home: StateDirectory, *kinds: str) -> None:
        """The owner revokes what was granted for these kinds."""
        control = await self.owner.connection.session.sync_control()
        given = control.grants.given_to(home.signer("machine").did, before=2**63)
        cids = [one.cid for one in given if any(kind in str(one.payload.pol) for kind in kinds)]
        assert cids
        async with with_authority(self.directory / "owner") as mesh:
            await mesh.authority.revoke(*cids)

    async def result(self, kind: str, text: str) -> str:
        handle = await self.owner.submit(kind, text)
        return await handle.result(timeout=PATIENCE_S)


@asynccontextmanager
async def a_place(tmp_path):
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(tmp_path / "owner", name="shown-out", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=tmp_path / "owner"))
        node = await stack.enter_async_context(owner.node())
        await stack.enter_async_context(hosted.gate(node))
        yield Place(tmp_path, owner)


@asynccontextmanager
async def a_worker(home: StateDirectory, *kinds: str, may_end: asyncio.Event | None = None):
    mesh = Mesh.open(home=home.path)

    async def echo(text: str) -> str:
        if may_end is not None:
            await may_end.wait()
        return text

    for kind in kinds:
        mesh.task(kind)(echo)
    async with mesh, mesh.worker() as worker:
        yield worker


async def as_people_are_told(work) -> None:
    """Of several services that end for one reason, commands tell the first."""
    try:
        await work
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from group


def connection_of(worker):
    return worker.session.engine._connection


async def test_a_worker_that_loses_one_kind_finishes_and_goes_on_with_the_other(tmp_path):
    async with a_place(tmp_path) as place:
        home = await place.join("box", "build.*", "render.*")
        may_end = asyncio.Event()
        async with a_worker(home, "build.image", "render.frame", may_end=may_end) as worker:
            under_way = await place.owner.submit("build.image", "begun before")
            await eventually(lambda: worker.busy == 1)
            epoch = connection_of(worker).epoch
            await place.take_back(home, "render")
            await eventually(lambda: connection_of(worker).epoch > epoch)
            may_end.set()
            assert await under_way.result(timeout=PATIENCE_S) == "begun before"
            assert await place.result("build.image", "begun behind") == "begun behind"
            late = await place.owner.submit("render.frame", "not its own any more")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(late.result(), 1)
        assert works(home.access().scope) == ("build.>",)


async def test_a_worker_that_loses_everything_ends_with_a_sentence(tmp_path):
    async with a_place(tmp_path) as place:
        home = await place.join("box", "build.*")

        async def work() -> None:
            async with a_worker(home, "build.image"):
                await place.take_back(home, "build")
                await asyncio.sleep(NEVER_S)

        with pytest.raises(EngineDenied, match="this login") as caught:
            await as_people_are_told(work())
        assert "antiphon join" in caught.value.hint
        with pytest.raises(EngineDenied, match="this login"):
            async with Mesh.open(home=home.path):
                pass


async def test_a_machine_that_was_away_comes_back_with_what_is_left(tmp_path):
    async with a_place(tmp_path) as place:
        home = await place.join("box", "build.*", "render.*")
        await log_in(home, home.access(), ["build.image"])
        await place.take_back(home, "render")
        await asyncio.sleep(0.3)
        async with a_worker(home, "build.image"):
            assert await place.result("build.image", "still") == "still"


async def test_what_somebody_else_lends_and_takes_back_disturbs_nobody(tmp_path):
    async with a_place(tmp_path) as place:
        home, lender = await place.join("box", "build.*"), await place.join("lender", "render.*")
        async with a_worker(home, "build.image") as worker:
            epoch = connection_of(worker).epoch
            async with with_authority(lender.path) as mesh:
                granted = await mesh.authority.grant(
                    home.signer("machine").did, claiming("render.frame", alias="")
                )
                await log_in(home, home.access(), [])
                assert works(home.access().scope) == ("build.>",)
                await mesh.authority.revoke(*granted.cids)
            assert await place.result("build.image", "undisturbed") == "undisturbed"
            assert connection_of(worker).epoch == epoch


async def test_what_somebody_else_lends_can_be_worked_on_by_asking_for_it(tmp_path):
    async with a_place(tmp_path) as place:
        home, lender = await place.join("box", "build.*"), await place.join("lender", "render.*")
        async with with_authority(lender.path) as mesh:
            to, lent = home.signer("machine").did, claiming("render.frame", alias="")
            granted = await mesh.authority.grant(to, lent)
            async with a_worker(home, "build.image", "render.frame") as worker:
                assert await place.result("render.frame", "lent") == "lent"
                epoch = connection_of(worker).epoch
                await mesh.authority.revoke(*granted.cids)
                await eventually(lambda: connection_of(worker).epoch > epoch)
                assert await place.result("build.image", "its own") == "its own"
