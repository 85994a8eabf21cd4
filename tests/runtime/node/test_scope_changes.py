"""A replica holds what the log shows within one scope, whatever becomes of that scope."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from antiphon.core.authority.grant_terms import Terms
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Unavailable
from antiphon.runtime.caller import submission
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import SEAL_LANE, FullNode
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_jobs import ReplicaJobs, job_records
from antiphon.runtime.services import beside
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.hosting.strongest_key import with_authority
from antiphon.sdk.mesh import Mesh
from tests.engines.nats.harness import sever
from tests.patience import PATIENCE_S
from tests.runtime.meshes import a_mesh, call, eventually
from tests.runtime.node.test_sealer import write_seal

BUILD, RENDER = "build.image", "render.frame"


class Place:
    """A hosted mesh with a full node of its owner, and one machine that may read some kinds."""

    def __init__(self, directory, owner: Mesh, node: FullNode, gate) -> None:
        self.directory, self.owner, self.node, self.gate = directory, owner, node, gate
        self.home = StateDirectory(directory / "reader")

    async def admit(self, kind: str) -> None:
        """Invite the machine, which redeems the ticket and so has a new login."""
        terms = Terms(can=("read",), kinds=(kind,), alias="reader")
        ticket = hosted_mesh.invite(StateDirectory(self.directory / "owner"), terms)
        await hosted_mesh.redeem(self.home, ticket, alias="reader")

    async def lend(self, kind: str) -> None:
        """The owner delegates more to the machine, which hears nothing of it."""
        async with with_authority(self.directory / "owner") as mesh:
            terms = Terms(can=("read",), kinds=(kind,), alias="")
            await mesh.authority.grant(self.home.signer("machine").did, terms)

    async def take_back(self, kind: str) -> None:
        control = await self.owner.connection.session.sync_control()
        given = control.grants.given_to(self.home.signer("machine").did, before=2**63)
        cids = [one.cid for one in given if kind in str(one.payload.pol)]
        async with with_authority(self.directory / "owner") as mesh:
            await mesh.authority.revoke(*cids)
        user = self.home.access().user
        of = self.gate._members.by_user
        await eventually(lambda: not of(user).scope.admits(f"{kind}.x", "/job/read"))

    @asynccontextmanager
    async def replicating(self):
        """The machine's own full node."""
        async with Mesh.open(home=self.home.path) as mesh, mesh.node() as node:
            yield node

    async def submit(self, kind: str, text: str):
        handle = await self.owner.submit(kind, text)
        return kind, handle.id

    async def cancel(self, kind: str, job: str) -> None:
        await submission.cancel(self.owner.connection.session, kind, job, reason="test")

    async def agree(self, node: FullNode, *jobs: tuple[str, str]) -> None:
        """The machine's replica comes to hold these lanes exactly as the full node's does."""
        newest = await self.owner.connection.session.log.last()
        await asyncio.wait_for(self.node.reached(newest.seq), PATIENCE_S)
        for kind, job in jobs:
            expected = job_records(self.node.replica, kind, job)
            assert expected
            await eventually(
                lambda kind=kind, job=job: node.replica.ask(ReplicaJobs).job(kind, job)
            )
            await eventually(
                lambda kind=kind, job=job, expected=expected: (
                    job_records(node.replica, kind, job) == expected
                )
            )
            assert node.replica.ask(ReplicaJobs).job(kind, job) == self.node.replica.ask(
                ReplicaJobs
            ).job(kind, job)


@asynccontextmanager
async def a_place(tmp_path):
    listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
    async with AsyncExitStack() as stack:
        hosted = await stack.enter_async_context(
            hosted_mesh.found_and_host(tmp_path / "owner", name="scopes", listen=listen)
        )
        owner = await stack.enter_async_context(Mesh.open(home=tmp_path / "owner"))
        node = await stack.enter_async_context(owner.node())
        gate = await stack.enter_async_context(hosted.gate(node))
        yield Place(tmp_path, owner, node, gate)


def line_of(node: FullNode):
    return node.session.engine._connection


def kinds_in(replica: Replica) -> set[str]:
    return {job.kind for job in replica.ask(ReplicaJobs).jobs(limit=100)}


@pytest.mark.nats
async def test_a_scope_that_grew_between_two_runs_shows_older_jobs_as_everybody_sees_them(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        async with place.replicating():
            pass
        older = await place.submit(BUILD, "called before the wider grant")
        frame = await place.submit(RENDER, "moves the cursor on")
        async with place.replicating() as node:
            assert kinds_in(node.replica) == {RENDER}
        await place.admit("build.*")
        await place.cancel(*older)
        async with place.replicating() as node:
            await place.agree(node, older, frame)


@pytest.mark.nats
async def test_a_scope_that_grows_by_a_new_login_of_a_running_node_shows_older_jobs(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        older = await place.submit(BUILD, "called before the wider grant")
        frame = await place.submit(RENDER, "seen")
        async with place.replicating() as node:
            await place.agree(node, frame)
            await place.admit("build.*")
            await place.cancel(*older)
            await place.cancel(*frame)
            await place.agree(node, frame)
            assert kinds_in(node.replica) == {RENDER}, "this login does not admit more"
            sever(node.session.engine)  # it comes back with the newest login
            await place.agree(node, older, frame)


@pytest.mark.nats
async def test_what_is_granted_without_a_new_login_is_not_judged_in_part(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        older = await place.submit(BUILD, "called before the wider grant")
        frame = await place.submit(RENDER, "seen")
        async with place.replicating() as node:
            await place.lend("build.*")
            await place.cancel(*older)
            await place.agree(node, frame)
            assert kinds_in(node.replica) == {RENDER}
        async with place.replicating() as node:  # the next start asks for what was granted since
            assert kinds_in(node.replica) == {RENDER, BUILD}
            await place.cancel(*frame)
            await place.agree(node, frame)
            await place.agree(node, older)


@pytest.mark.nats
async def test_a_grant_that_lapsed_and_returned_leaves_no_hole(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        await place.admit("build.*")
        job = await place.submit(BUILD, "called while it could be read")
        async with place.replicating() as node:
            await place.agree(node, job)
            epoch = line_of(node).epoch
            await place.take_back("build")
            await eventually(lambda: line_of(node).epoch > epoch)
            unseen = await place.submit(BUILD, "called meanwhile")
            await place.cancel(*job)
            frame = await place.submit(RENDER, "moves the cursor on")
            await place.agree(node, frame)
            assert kinds_in(node.replica) == {RENDER}, "jobs that it no longer follows are gone"
            await place.admit("build.*")
            sever(node.session.engine)  # it comes back with the newest login
            await place.agree(node, job, unseen, frame)


@pytest.mark.nats
async def test_a_scope_that_shrank_between_two_runs_is_no_corrupt_log(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        await place.admit("build.*")
        frame = await place.submit(RENDER, "stays")
        job = await place.submit(BUILD, "the newest record of the replica")
        async with place.replicating() as node:
            await place.agree(node, frame, job)
        await place.take_back("build")
        async with place.replicating() as node:
            await place.agree(node, frame)
            assert kinds_in(node.replica) == {RENDER}


@pytest.mark.nats
async def test_a_command_beside_a_node_that_shows_less_says_so(tmp_path):
    async with a_place(tmp_path) as place:
        await place.admit("render.*")
        async with place.replicating():
            await place.admit("build.*")
            async with Mesh.open(home=place.home.path) as mesh:
                with pytest.raises(Unavailable, match="with fewer kinds than") as told:
                    async with mesh.replica():
                        pass
        assert "restart" in told.value.hint


# --- the replica itself -----------------------------------------------------------------------


async def seen_by(mesh, replica: Replica, *reads: str) -> FullNode:
    """A node whose login shows these filters catches up, and stops."""
    connection = await mesh.connection()
    connection.session.log.reads = reads
    node = FullNode(connection.session, replica)
    async with beside(node.run(), ready=node.ready):
        pass
    return node


async def test_full_rights_after_a_scope_compare_seals_again(tmp_path):
    async with a_mesh("memory") as mesh:
        owner = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        await call(owner.session, 1)
        replica = Replica(tmp_path / "replica.db", mesh=mesh.mesh)
        await seen_by(mesh, replica, ">")
        assert replica.tree.is_kept
        await seen_by(mesh, replica, "jobs.job.test.*.>")
        assert not replica.tree.is_kept
        await write_seal(owner, root="0" * 64)
        node = await seen_by(mesh, replica, ">")
        assert replica.tree.is_kept
        newest = replica.newest_of(SEAL_LANE)
        assert newest.verdict is Verdict.SEAL
        assert replica.tree.size_at(node.applied) == node.applied
        replica.close()


async def test_a_replica_that_is_not_built_anew_to_its_end_goes_on_with_that(tmp_path):
    path = tmp_path / "replica.db"
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        jobs = [await call(caller, number) for number in range(5)]
        replica = Replica(path, mesh=mesh.mesh)
        await seen_by(mesh, replica, "jobs.job.other.*.>")
        # What follows is a process that ends after the second record.
        connection = await mesh.connection()
        node = FullNode(connection.session, replica)
        await node.resume()
        assert replica.cursor.seq == 0
        assert (replica.sizes.by_state(), replica.ask(ReplicaJobs).jobs()) == ({}, [])
        page = await connection.session.log.read(0, limit=2)
        await node.apply(page.records)
        replica.close()
        replica = Replica(path, mesh=mesh.mesh)
        assert (replica.cursor.seq, replica.reads) == (2, (">",))
        await seen_by(mesh, replica, ">")
        assert replica.sizes.by_state() == {"pending": len(jobs)}
        assert replica.tree.size_at(jobs[-1].seq) == jobs[-1].seq
        replica.close()


async def test_a_replica_whose_scope_is_as_it_was_is_not_built_anew(tmp_path):
    async with a_mesh("memory") as mesh:
        replica = Replica(tmp_path / "replica.db", mesh=mesh.mesh)
        await seen_by(mesh, replica, "jobs.job.build.*.>", "jobs.job.test.*.>")
        cursor = replica.cursor
        await call((await mesh.connection()).session, "more")
        connection = await mesh.connection()
        connection.session.log.reads = ("jobs.job.build.*.>", "jobs.job.test.*.>")
        await FullNode(connection.session, replica).resume()
        assert replica.cursor == cursor
        replica.close()
