"""Announcing an address: what is wrong with one announcement ends nothing."""

import asyncio

from antiphon.runtime.gate.addresses import FILE, keep_announcing
from tests.runtime.meshes import a_mesh


async def test_a_file_that_cannot_be_read_does_not_end_the_gate(tmp_path):
    (tmp_path / FILE).mkdir()
    async with a_mesh("memory") as mesh:
        bus = (await mesh.connection()).engine.bus
        announcing = asyncio.ensure_future(keep_announcing(tmp_path, bus))
        done, _ = await asyncio.wait([announcing], timeout=0.2)
        announcing.cancel()
        assert not done
