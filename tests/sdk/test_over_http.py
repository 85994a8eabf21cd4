"""`Mesh.connect`: a program that reaches one node's HTTP interface, and no server of the mesh."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import pytest

from antiphon import Mesh
from antiphon.assembly.mesh_connection import HTTP
from antiphon.engines.nats.server.certificate_authority import Authority
from antiphon.errors import Misconfigured, NotPermitted, Rejected, Unavailable
from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.sdk.jobs.unserved_kinds import unserved_here
from antiphon.sdk.plans.triggers import cron
from tests.interfaces.http.client import served
from tests.interfaces.http.test_member_routes import CLOSED, World
from tests.runtime.meshes import KIND
from tests.runtime.messages.post_office import grant

pytestmark = pytest.mark.processes


@asynccontextmanager
async def a_mesh_with_a_worker(function=lambda a, b: a + b):
    """A closed mesh with a node that serves HTTP, and a worker beside it."""
    async with served(CLOSED) as node:
        world = World(node, await node.mesh.connection(node.mesh.owner))
        worker = await node.mesh.connection()
        await grant(node.mesh, world.owner, worker.keyring.did, ("claim",), ("*",))
        await worker.session.sync_control()
        await node.mesh.worker(function, connection=worker)
        yield world


def key_in(home) -> str:
    """The key that a program will use."""
    state = StateDirectory(home)
    state.make()
    held = state.key(HTTP, SystemEntropy())
    held.release()
    return held.keyring.did


@asynccontextmanager
async def a_program(home, *can: str, **worker):
    """A program that may do this, beside a worker."""
    async with a_mesh_with_a_worker(**worker) as world, await granted(world, home, *can) as mesh:
        yield mesh


async def granted(world, home, *can: str) -> Mesh:
    await grant(world.node.mesh, world.owner, key_in(home), can, (KIND,))
    await world.read()
    url = f"http://127.0.0.1:{world.node.port}"
    return Mesh.connect(url, mesh=world.node.mesh.mesh, home=home)


async def test_a_program_submits_waits_and_reads_with_a_key_of_its_own(tmp_path):
    async with a_program(tmp_path, "schedule", "read", "cancel") as mesh:
        add = mesh.task(KIND)(lambda a, b: a + b)
        assert mesh.engine == "http"
        handle = await add.submit(2, 3)
        assert await handle.result() == 5
        assert await asyncio.gather(
            *[one.result() for one in await mesh.submit_many([add.bind(n, n) for n in range(5)])]
        ) == [0, 2, 4, 6, 8]
        listed = await mesh.jobs(kind=KIND)
        assert {job.scheduler for job in listed} == {mesh.did}
        assert len(listed) == 6
        later = await add.options(delay=3600).submit(1, 1)
        assert (await later.cancel()).outcome == "cancelled"
        with pytest.raises((NotPermitted, Rejected)):
            await mesh.submit("other.work", 1)


async def test_a_worker_a_node_and_messages_say_that_they_are_not_there(tmp_path):
    async with a_program(tmp_path, "schedule", "claim") as mesh:
        for what in (mesh.worker(), mesh.node()):
            with pytest.raises(Misconfigured, match="over HTTP"):
                async with what:
                    pass
        with pytest.raises(Misconfigured, match="messages"):
            await mesh.messages.send(f"{mesh.did}/main", 1)
        with pytest.raises(NotPermitted, match="over HTTP"):
            await mesh.submit(KIND, "x" * 100_000, 1)


async def test_over_http_nobody_is_heard_so_nothing_is_said_of_who_runs_what(tmp_path):
    async with a_program(tmp_path, "schedule", "read") as mesh:
        await mesh.submit(KIND, 1, 1, options={"requires": ("gpu",)})
        assert [job.state for job in await mesh.jobs()] == ["pending"]
        assert await unserved_here(mesh) == []


async def test_a_key_without_a_delegation_is_told_what_the_owner_types(tmp_path):
    async with a_mesh_with_a_worker() as world:
        url = f"http://127.0.0.1:{world.node.port}"
        with pytest.raises(NotPermitted) as refused:
            async with Mesh.connect(url, mesh=world.node.mesh.mesh, home=tmp_path):
                pass
        assert f"antiphon delegate {key_in(tmp_path)}" in refused.value.hint
        with pytest.raises(NotPermitted, match="another mesh"):
            async with Mesh.connect(url, mesh="a" * 16, home=tmp_path):
                pass


async def test_a_node_that_is_not_there_is_told_as_such(tmp_path):
    with pytest.raises(Unavailable, match="cannot be reached"):
        async with Mesh.connect("http://127.0.0.1:1", mesh="a" * 16, home=tmp_path):
            pass
    with pytest.raises(Misconfigured, match="in the clear"):
        async with Mesh.connect("http://mesh.example", mesh="a" * 16, home=tmp_path):
            pass


@asynccontextmanager
async def behind_tls(port: int, hosts: list[str], folder):
    """A proxy with a certificate before a node, as on a mesh that others reach; its port."""
    authority = Authority.new()
    chain, key = authority.issue(hosts)
    (folder / "ca.pem").write_text(authority.certificate_pem)
    (folder / "node.pem").write_text(chain)
    (folder / "node.key").write_text(key)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(folder / "node.pem", folder / "node.key")

    async def copy(reader, writer):
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        writer.close()

    async def passed_on(reader, writer):
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer))

    server = await asyncio.start_server(passed_on, "127.0.0.1", 0, ssl=shown)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_over_tls_the_node_has_to_be_the_one_that_the_authority_names(tmp_path):
    async with a_mesh_with_a_worker() as world:
        await granted(world, tmp_path / "home", "schedule", "read")
        mesh, ca = world.node.mesh.mesh, tmp_path / "ca.pem"
        how = {"mesh": mesh, "home": tmp_path / "home"}
        async with behind_tls(world.node.port, ["127.0.0.1"], tmp_path) as port:
            url = f"https://127.0.0.1:{port}"
            async with Mesh.connect(url, ca=ca, **how) as program:
                assert await (await program.submit(KIND, 20, 22)).result() == 42
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                async with Mesh.connect(url, **how):
                    pass
            with pytest.raises(Misconfigured, match="there is no file"):
                async with Mesh.connect(url, ca=tmp_path / "none.pem", **how):
                    pass
        async with behind_tls(world.node.port, ["mesh.example"], tmp_path) as port:
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                async with Mesh.connect(f"https://127.0.0.1:{port}", ca=ca, **how):
                    pass


async def test_locks_documents_plans_and_graphs_work_as_everywhere(tmp_path):
    async with a_mesh_with_a_worker() as world:
        rights = ("schedule", "read", "lock", "memory")
        await grant(world.node.mesh, world.owner, key_in(tmp_path), rights, ("*",))
        async with await granted(world, tmp_path, "read") as mesh:
            async with mesh.lock("door"):
                assert [one.key for one in await mesh.locks.list()] == ["door"]
            notes = mesh.memory["notes"]
            await notes.put("colour", "blue")
            assert (await notes.get("colour")).value == "blue"
            add = mesh.task(KIND)(lambda a, b: a + b)
            assert await mesh.plans.put("hourly", cron("0 * * * *"), add.bind(1, 2))
            assert [one.name for one in await mesh.plans.list()] == ["hourly"]
            async with mesh.graph() as graph:
                first = graph.add(add, 1, 2)
                second = graph.add(add, first, 4)
            assert graph.handle(second).id
