"""A worker process that answers `/metrics`. Prints `ready` with the port, and runs until ended."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from antiphon import assembly, telemetry
from antiphon.interfaces.http.node_server import worker_server
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.http.access import HttpAccess
from antiphon.sdk.http.operator_token import OperatorToken
from antiphon.sdk.http.worker_view import WorkerView
from antiphon.settings import HttpAddress
from bench.meshes.event_loop import run
from bench.metrics.calls import LATER, SHAKY, STEADY, TOKEN, handlers_for

KINDS = (STEADY, SHAKY, LATER)


async def work(home: StateDirectory) -> None:
    telemetry.configure("error", "json")  # a line for each failed run is not wanted here
    settings = WorkerSettings(slots=64, drain_s=0)
    async with (
        assembly.join(home, "worker", kinds=KINDS) as connection,
        assembly.working(connection, handlers_for(list(KINDS)).executors(), settings) as worker,
        worker_server(
            WorkerView(worker),
            HttpAccess(worker, OperatorToken(TOKEN)),
            HttpAddress("127.0.0.1", 0),
        ) as port,
    ):
        print(f"ready {port}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    run(work(StateDirectory(parser.parse_args().home)))


if __name__ == "__main__":
    main()
