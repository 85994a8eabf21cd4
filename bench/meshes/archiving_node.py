"""A mesh's coordinator with an archive in files, in a mesh whose hours are short.

It archives ten times in an hour, makes snapshots, seals, writes the archive's files and purges, as
a coordinator does. As a process it prints `ready` with the processor time that it has used so far,
and ends when it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from antiphon import assembly
from antiphon.assembly.hosted_mesh import coordinate
from antiphon.engines.nats import NatsEngine
from antiphon.engines.nats.log.streams import Streams, log_name
from antiphon.interfaces.cli.screen.command_loop import collect_less_often
from antiphon.ports import Engine
from antiphon.runtime.archive.archive_writer import ArchiveWriter
from antiphon.runtime.coordinator.archiver import Archiver, Archiving
from antiphon.runtime.file_store import FolderStore
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from bench.meshes.event_loop import run
from bench.meshes.short_hours import short_hours

ARCHIVES_AN_HOUR: Final = 10


class Coordinating(Struct, frozen=True):
    """A coordinator at work."""

    node: FullNode
    archiver: Archiver
    writer: ArchiveWriter
    replica: Path


class Hot(Struct, frozen=True):
    """What is on the log."""

    records: int
    subjects: int
    size: int
    """In bytes, as the server stores it."""


class Newcomer(Struct, frozen=True):
    """A full node that began with the newest snapshot."""

    start_s: float
    left_out: int
    """Records before the snapshot, which it need not read."""
    replica_mb: float
    applied: int


@asynccontextmanager
async def coordinating(
    home: StateDirectory, replica_file: Path, files: FolderStore, hour_s: float
) -> AsyncIterator[Coordinating]:
    """The coordinator, as long as the block runs."""
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(assembly.owned_replica(replica_file, None, own))
        node = await stack.enter_async_context(assembly.replicating(own, replica, caretaking=False))
        await coordinate(home, own.session)
        writer = ArchiveWriter(node, own.keyring, files, round_s=0.2)
        archiving = Archiving(every_s=hour_s / ARCHIVES_AN_HOUR, is_purging=True)
        archiver = Archiver(node, archiving, copied=lambda: writer.size)
        sealer = Sealer(node, bar_s=min(1.0, hour_s / 60), calm_s=0.05)
        services = [writer.run(), archiver.run(), sealer.run()]
        running = [asyncio.ensure_future(one) for one in services]
        try:
            yield Coordinating(node, archiver, writer, replica_file)
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def hot(engine: Engine, mesh: str) -> Hot:
    """Ask the server what it stores now."""
    assert isinstance(engine, NatsEngine)
    told = await Streams(engine.log.requester).info(log_name(mesh))
    assert told is not None
    state = told["state"]
    return Hot(state["messages"], state["num_subjects"], state["bytes"])


async def newcomer(home: StateDirectory, replica_file: Path) -> Newcomer:
    """How long a full node that begins now takes until it has applied everything."""
    async with AsyncExitStack() as stack:
        fresh = await stack.enter_async_context(assembly.join(home, "node"))
        replica = await stack.enter_async_context(assembly.owned_replica(replica_file, None, fresh))
        began_s = time.monotonic()
        node = await stack.enter_async_context(
            assembly.replicating(fresh, replica, caretaking=False)
        )
        return Newcomer(
            start_s=round(time.monotonic() - began_s, 2),
            left_out=replica.tree.base,
            replica_mb=round(file_bytes(replica_file) / 1e6, 2),
            applied=node.applied,
        )


def archive_bytes(folder: Path) -> int:
    """Of all its files."""
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())


def file_bytes(database: Path) -> int:
    """Of a replica's file, with what is not merged into it yet."""
    return sum(one.stat().st_size for one in database.parent.glob(f"{database.name}*"))


async def _coordinate(home: StateDirectory, archive: Path, hour_s: float) -> None:
    running = coordinating(home, home.path / "replica.db", FolderStore(archive), hour_s)
    with short_hours():
        async with running:
            collect_less_often()
            print(f"ready {time.process_time()}", flush=True)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--archive", type=Path, required=True)
    parser.add_argument("--hour", type=float, required=True)
    args = parser.parse_args()
    run(_coordinate(StateDirectory(args.home), args.archive, args.hour))


if __name__ == "__main__":
    main()
