"""A full node in a process of its own, which coordinates whenever the owner names its key."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec import Struct

from antiphon import assembly
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica
from chaos.cluster.child_process import begin


class NodeConfig(Struct, frozen=True, kw_only=True):
    """How such a process works."""

    home: Path
    key: str
    """The name of its key; whoever takes its place has the same."""
    replica: Path
    log: Path
    bar_s: float = 32.0
    """How often it seals at most, while it coordinates."""


async def follow(config: NodeConfig) -> None:
    """Be a full node until killed."""
    async with assembly.join(StateDirectory(config.home), "node", key=config.key) as connection:
        replica = Replica(config.replica, mesh=connection.session.mesh)
        async with assembly.replicating(connection, replica, caretaking=True, bar_s=config.bar_s):
            config.replica.with_suffix(".ready").touch()
            await asyncio.Event().wait()


def main(config: NodeConfig) -> None:
    """What `multiprocessing` calls after the fork."""
    begin(config.log, level="warning")
    asyncio.run(follow(config))
