"""A full node that is killed while it writes: nothing is lost, doubled or half applied (S8)."""

import asyncio
import signal
import sqlite3
import sys

import pytest

from antiphon.runtime.node.full_node import SEAL_LANE
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_texts import TABLE as TEXTS
from tests.local_server import shared_server
from tests.patience import PATIENCE_S
from tests.runtime.meshes import a_mesh, call

CRASHES = 4

pytestmark = [pytest.mark.nats, pytest.mark.processes]


async def killed_while_it_follows(mesh, path, write, *, beyond: int) -> None:
    """Run a node on this replica, write beside it, and kill it once it has applied that much.

    Others write until it is gone, and once more: there is always something that it has missed.
    """
    gone = asyncio.Event()
    server = shared_server()
    words = ("-m", "tests.runtime.node.killed_node", server.url, server.user, server.password)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *words, mesh.mesh, str(path), stdout=asyncio.subprocess.PIPE
    )

    async def applied() -> int:
        return int(await child.stdout.readline())

    try:
        async with asyncio.timeout(PATIENCE_S):
            await applied()
            writing = asyncio.ensure_future(write(gone))
            while await applied() <= beyond:
                pass
    finally:
        child.send_signal(signal.SIGKILL)
        await child.wait()
        gone.set()
    await writing


def content(path) -> dict[str, list[tuple]]:
    """Every table of a replica, as it is on disk; what differs by chance is left out."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as found:
        names = [
            row[0] for row in found.execute("select name from sqlite_master where type='table'")
        ]
        tables = {
            name: sorted(found.execute(f"select * from {name}").fetchall(), key=repr)
            for name in sorted(names)
            if name != "meta" and not name.startswith(TEXTS)  # how it is stored differs by chance
        }
        texts = found.execute(f"select rowid, text from {TEXTS} order by 1").fetchall()
        return {**tables, TEXTS: texts}


@pytest.mark.req("S8")
async def test_a_killed_node_goes_on_from_its_file_and_agrees_with_one_that_never_fell(tmp_path):
    async with a_mesh("nats") as mesh:
        caller = (await mesh.connection()).session
        path = tmp_path / "killed.db"
        last = 0

        async def write_on(gone: asyncio.Event) -> None:
            nonlocal last
            while not gone.is_set():
                last = (await call(caller, last)).seq
            last = (await call(caller, last)).seq

        for crash in range(CRASHES):
            await killed_while_it_follows(mesh, path, write_on, beyond=last + 10 * (crash + 1))
            left = Replica(path, mesh=mesh.mesh, read_only=True)
            reached = left.refresh().seq
            assert reached < last, "it was killed in the middle"
            mark = left.tree.mark_at(reached)
            assert mark.size == reached, "records, lanes and tree changed together"
            assert mark.root, "of the records as they are"
            assert left.record(reached) is not None
            assert left.record(reached + 1) is None
            left.close()

        # Cross-node audit: another node seals what it has seen, and this one agrees.
        sound = await mesh.node(
            caretaking=False,
            path=tmp_path / "sound.db",
            connection=await mesh.connection(mesh.owner),
        )
        risen = await mesh.node(caretaking=False, path=path)
        await sound.reached(last)
        assert await Sealer(sound, bar_s=1.0).seal()
        for node in (sound, risen):
            await node.reached(sound.seals.state.seq)
            assert [one.verdict.value for one in node.replica.lane_records(SEAL_LANE)] == ["ok"]
            node.replica.flush()
        assert content(path) == content(tmp_path / "sound.db")
