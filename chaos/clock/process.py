"""A process of `chaos clock`: a worker, a caller or a full node, under a clock that is set wrong.

Only the clock is special: it is set from outside. A caller writes down every job whose call was
acknowledged, and logs why a call was refused.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

import msgspec

from antiphon import assembly, telemetry
from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import AntiphonError
from antiphon.runtime.caller import submission
from antiphon.runtime.executors.handler_call import call_text
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.session import Session
from chaos.audit.execution_journal import JournalWriter, boot_ns
from chaos.clock.fake_clock import SuspendableLoop
from chaos.cluster.child_process import die_with_parent
from chaos.cluster.worker_process import KINDS, WorkerConfig, work

ROLES: Final = ("worker", "caller", "node")
FIRST_NUMBER: Final = 1_000_000
"""Jobs differ by their number; those of the command itself begin at 0."""
CALL_EVERY_S: Final = 0.3
RETRY_S: Final = 0.2
CALLED_WORK_MS: Final = 50


class Acked(msgspec.Struct, frozen=True, array_like=True):
    """A call that was acknowledged."""

    at_ns: int
    kind: str
    job_id: str


async def call_job(session: Session, acks: int, number: int) -> None:
    """Call one job, as often as it takes: the same call again is the same job."""
    kind = KINDS[number % len(KINDS)]
    content = manifest.author(
        {"command": [f"@{kind}"], "args": [call_text((number, CALLED_WORK_MS), {})], "timeout": 60}
    )
    while True:
        try:
            called = await submission.submit(session, ScheduleBody(kind=kind, manifest=content))
        except AntiphonError as problem:
            print(f"call {number} refused: {problem}", file=sys.stderr, flush=True)
            await asyncio.sleep(RETRY_S)
        else:
            acked = Acked(boot_ns(), called.kind, called.id)
            os.write(acks, msgspec.json.encode(acked) + b"\n")
            return


async def keep_calling(config: WorkerConfig, acks_file: Path) -> None:
    acks = os.open(acks_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = FIRST_NUMBER
    async with assembly.join(StateDirectory(config.home), "client") as connection:
        await connection.session.sync_control()
        JournalWriter(config.journal).note("ready")
        while True:
            await call_job(connection.session, acks, number)
            number += 1
            await asyncio.sleep(CALL_EVERY_S)


async def keep_replicating(config: WorkerConfig, replica_file: Path) -> None:
    home = StateDirectory(config.home)
    async with (
        assembly.join(home, "node") as connection,
        assembly.owned_replica(replica_file, None, connection) as replica,
        assembly.replicating(connection, replica, caretaking=True),
    ):
        JournalWriter(config.journal).note("ready")
        await asyncio.get_running_loop().create_future()


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.clock.process")
    parser.add_argument("role", choices=ROLES)
    for name in ("home", "journal", "log", "own", "suspended"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    die_with_parent()
    config = WorkerConfig(home=args.home, journal=args.journal, log=args.log)
    telemetry.configure("warning", "text")
    roles: dict[str, Callable[[], Coroutine[None, None, None]]] = {
        "worker": lambda: work(config),
        "caller": lambda: keep_calling(config, args.own),
        "node": lambda: keep_replicating(config, args.own),
    }
    with asyncio.Runner(loop_factory=lambda: SuspendableLoop(args.suspended)) as runner:
        runner.run(roles[args.role]())


if __name__ == "__main__":
    main()
