"""A hosted mesh with a little of everything on it, for tests of backups."""

from contextlib import AsyncExitStack, asynccontextmanager

from antiphon import Mesh
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.sealer import Sealer
from antiphon.sdk.hosting import hosted_mesh
from tests.runtime.meshes import eventually

LOOPBACK = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
BYTES = bytes(range(256)) * 1500


class Place:
    """The running mesh."""

    def __init__(self, home: StateDirectory, hosting, owner: Mesh, node) -> None:
        self.home, self.hosting, self.owner, self.node = home, hosting, owner, node

    async def work(self, jobs: int = 3) -> None:
        """Jobs, a message to itself and a stored value."""
        for number in range(jobs):
            await self.owner.submit("team.add", number, self.node.applied)
        await self.owner.messages.send(self.owner.messages.address, f"hello {self.node.applied}")

    async def keep(self, data: bytes, name: str = "file"):
        """Store a value."""
        path = self.home.path.parent / name
        path.write_bytes(data)
        return await self.owner.artifacts.keep(path, name)

    async def seal(self) -> None:
        """Have the coordinator seal what is on the log."""
        last = await self.owner.connection.session.log.last()
        await self.node.reached(last.seq)
        await Sealer(self.node, bar_s=0.0).seal()
        await eventually(lambda: self.node.seals.upto >= last.seq)


@asynccontextmanager
async def hosted_again(home, hosting):
    """The mesh of a directory while it is hosted: owner, full node and gate."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        here = await enter(hosting)
        owner = await enter(Mesh.open(home=home))
        node = await enter(owner.node())
        await enter(here.gate(node))
        await here.coordinate(node)
        yield Place(StateDirectory(home), here, owner, node)


def a_mesh_to_back_up(directory):
    """A new mesh in a directory."""
    made = hosted_mesh.found_and_host(directory / "owner", name="precious", listen=LOOPBACK)
    return hosted_again(directory / "owner", made)
