"""Meshes with an archive, and archives that are alone."""

from contextlib import asynccontextmanager
from pathlib import Path

from antiphon.runtime.archive.archive_writer import ArchiveWriter
from antiphon.runtime.caller import submission
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from tests.runtime.meshes import CALM, KIND, a_mesh, call


class Archived:
    """A coordinator's full node that seals and archives when it is told to."""

    def __init__(self, mesh, node: FullNode, folder: Path) -> None:
        self.mesh, self.node, self.folder = mesh, node, folder
        self.writer = self.new_writer()
        self.worker = None

    def new_writer(self) -> ArchiveWriter:
        return ArchiveWriter(self.node, self.mesh.owner, FolderStore(self.folder))

    async def work(self, *numbers: int) -> list[str]:
        """Submit jobs and wait until they have ended; their ids."""
        called = [await call(self.node.session, number) for number in numbers]
        for one in called:
            await submission.wait_for_end(self.node.session, KIND, one.id)
        return [one.id for one in called]

    async def litter(self, count: int, payload: bytes = b"junk") -> None:
        """Records that nobody can read: a quick way to a large tree."""
        log = self.node.session.log
        for at in range(count):
            subject = f"ap.{self.mesh.mesh}.odd.{at}"
            (newest,) = await log.newest([subject]) or [None]
            last = newest.seq if newest is not None else 0
            text = b"%b %d %d" % (payload, at, last)
            await log.append(subject, text, message_id=text.hex()[:64], expected_last=last)

    async def seal(self) -> None:
        await self.node.reached((await self.node.session.log.last()).seq)
        assert await Sealer(self.node, bar_s=1.0).seal()

    async def archive(self) -> None:
        await self.seal()
        assert await self.writer.look()


@asynccontextmanager
async def an_archived_mesh(folder: Path):
    async with a_mesh("memory", CALM) as mesh:
        node = await mesh.node(caretaking=False, connection=await mesh.connection(mesh.owner))
        archived = Archived(mesh, node, folder)
        archived.worker = await mesh.worker(lambda number: number)
        yield archived


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of an archive, by its path."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
