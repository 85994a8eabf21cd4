"""The coordinator's process of `bench graph`: a full node. Prints its key, then waits."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from antiphon import assembly
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica


async def coordinate(home: StateDirectory, replica_path: Path) -> None:
    """Be a full node until the process is ended."""
    async with assembly.join(home, "node") as connection:
        replica = Replica(replica_path, mesh=connection.session.mesh)
        async with assembly.replicating(connection, replica, caretaking=True):
            print(connection.session.author.did, flush=True)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    args = parser.parse_args()
    asyncio.run(coordinate(StateDirectory(args.home), args.home / "coordinator.db"))


if __name__ == "__main__":
    main()
