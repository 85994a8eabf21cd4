"""A full node whose connection is cut while it catches up goes on."""

import pytest

from antiphon.errors import Unavailable
from antiphon.runtime.node import purged_lanes
from tests.runtime.meshes import a_mesh, call


@pytest.mark.virtual_time
async def test_a_connection_that_is_cut_at_the_end_of_catching_up_ends_no_node(monkeypatch):
    """As when the gate gives it a newer login at that moment."""
    cut = [Unavailable("the connection was lost before the answer came")] * 2
    read_again = purged_lanes.read_again

    async def cut_twice(*reads):
        if cut:
            raise cut.pop()
        await read_again(*reads)

    monkeypatch.setattr(purged_lanes, "read_again", cut_twice)
    async with a_mesh("memory") as mesh:
        caller = (await mesh.connection()).session
        job = await call(caller, 1)
        node = await mesh.node(caretaking=False)
        await node.reached(job.seq)
        assert cut == []
