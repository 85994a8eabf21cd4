"""A request of GitHub's that comes again: the same job for as long as the mesh remembers it."""

import asyncio

import pytest
from msgspec.structs import replace

from antiphon.runtime.caller import submission
from antiphon.sdk.http.node_api import NodeApi
from antiphon.sdk.webhooks.hook_file import HookFile
from tests.interfaces.http.client import as_mesh
from tests.runtime.log.test_archived_lanes import archive
from tests.runtime.meshes import CALM, a_mesh
from tests.sdk.webhooks.test_signature import SECRET, github

HOUR_S = 3_600
KIND = "release.ship"
BODY = b'{"version": 7}'


@pytest.mark.virtual_time
async def test_the_same_body_is_the_same_job_until_the_horizon(tmp_path):
    path = tmp_path / "webhooks.toml"
    path.write_text(f'[ship]\nsecret = "{SECRET.decode()}"\nsubmit = "{KIND}"\n')
    path.chmod(0o600)
    ms = HOUR_S * 1_000
    rules = replace(CALM, retention_ms=ms, horizon_ms=2 * ms, start_by_ms=ms)
    async with a_mesh("memory", rules) as mesh:
        program = await as_mesh(mesh, mesh.owner)
        session = program.connection.session
        api = NodeApi(program, await mesh.node(caretaking=False), HookFile(path))

        async def sent():
            return await api.hook("ship", api.wanted("ship", github(BODY), BODY))

        first = await sent()
        await submission.cancel(session, KIND, first.id, reason="done with")
        news = [first.is_new]
        for _ in range(2):
            await asyncio.sleep(1.1 * HOUR_S)
            await archive(mesh, session)
            news.append((await sent()).is_new)
        assert news == [True, False, True], "the second one is behind the horizon"
