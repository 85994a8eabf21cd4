"""The process that hosts the mesh: server, gate and full node, until it is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from antiphon.files import replace_file
from antiphon.sdk.hosting import hosted_mesh
from antiphon.sdk.mesh import Mesh
from chaos.cluster.child_process import begin


class HostConfig(Struct, frozen=True, kw_only=True):
    """One machine that hosts the mesh."""

    home: Path
    ready: Path
    """Gets the process id of the server once members can connect."""
    log: Path


async def host(config: HostConfig) -> None:
    """Create the mesh, or serve the one that was restored."""
    if (config.home / "mesh.json").exists():
        hosting = hosted_mesh.host(config.home)
    else:
        listen = hosted_mesh.Listen(host="127.0.0.1", port=0, names=("127.0.0.1",))
        hosting = hosted_mesh.found_and_host(config.home, name="restore", listen=listen)
    async with hosting as here, Mesh.open(home=config.home) as mesh, mesh.node() as node:
        await here.coordinate(node)
        async with here.gate(node):
            replace_file(config.ready, str(here.server_pid).encode())
            await asyncio.get_running_loop().create_future()


def main(config: HostConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log)
    asyncio.run(host(config))
