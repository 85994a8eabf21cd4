"""A mesh in a forked child: what was opened before the fork raises, and may be opened anew."""

import asyncio

import pytest

from antiphon import Mesh
from tests.forked import in_child

pytestmark = pytest.mark.processes


async def test_a_child_cannot_sign_through_its_parents_mesh():
    async with Mesh.open(engine="memory") as mesh:
        said = in_child(lambda: asyncio.run(mesh.submit("example.add", 2, 3)))
        assert said.startswith("Forked: this was opened in the parent process")
        await mesh.submit("example.add", 2, 3)


async def test_a_child_can_open_the_mesh_anew():
    async def again() -> str:
        async with mesh:
            await mesh.submit("example.add", 2, 3)
            return mesh.did

    async with Mesh.open(engine="memory") as mesh:
        said = in_child(lambda: asyncio.run(again()))
        assert said.startswith("did:key:")
        assert said != mesh.did
        await mesh.submit("example.add", 2, 3)
