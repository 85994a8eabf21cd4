"""A full node as a process: it verifies every record and keeps the replica.

Prints `ready` with the processor time that it has used so far, in seconds. Ends when it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from antiphon import assembly
from antiphon.interfaces.cli.screen.command_loop import collect_less_often
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.replica.replica import Replica
from bench.meshes.event_loop import run


async def follow(home: StateDirectory) -> None:
    async with assembly.join(home, "node") as connection:
        replica = Replica(home.path / "replica.db", mesh=connection.session.mesh)
        async with assembly.replicating(connection, replica, caretaking=True):
            collect_less_often()
            print(f"ready {time.process_time()}", flush=True)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    run(follow(StateDirectory(parser.parse_args().home)))


if __name__ == "__main__":
    main()
