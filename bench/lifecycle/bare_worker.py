"""A bare worker process of `bench lifecycle`: drains the queue with the engine's client alone.

The same client code, the same consumer, the same records in size and number, the same
compare-and-set and the same acknowledgement as ours, but nothing is signed, verified, decoded, read
back or judged. `single` writes each record by itself; `batched` gathers them as a node does
(decision 0049). Prints `ready` with the processor time that it has used so far, in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from antiphon import assembly
from antiphon.core.families.jobs import subjects as job_subjects
from antiphon.core.families.jobs.subjects import queue_name
from antiphon.errors import AntiphonError
from antiphon.ports import Append, OpLog
from antiphon.runtime.identity.state_directory import StateDirectory
from antiphon.runtime.log.write_turns import TOGETHER, UNDER_WAY
from bench.meshes.event_loop import run
from bench.signed_log import KIND

Write = Callable[[Append], Awaitable[int]]


class BareTurns:
    """Gathers records while a few requests are under way, or one that is larger."""

    def __init__(self, log: OpLog, tasks: asyncio.TaskGroup) -> None:
        self._log = log
        self._tasks = tasks
        self._waiting: list[tuple[Append, asyncio.Future[int]]] = []
        self._sizes: dict[object, int] = {}
        """Of the requests under way."""
        self._soon: asyncio.Handle | None = None

    async def write(self, record: Append) -> int:
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[int] = loop.create_future()
        self._waiting.append((record, stored))
        self._begin_soon()
        return await stored

    def _begin_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._soon = None
        while self._waiting:
            largest = max(self._sizes.values(), default=0)
            if len(self._sizes) >= UNDER_WAY or len(self._waiting) < largest:
                return
            taken, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            turn = object()
            self._sizes[turn] = len(taken)
            self._tasks.create_task(self._send(turn, taken))

    async def _send(self, turn: object, taken: list[tuple[Append, asyncio.Future[int]]]) -> None:
        answers = await self._log.append_many([record for record, _ in taken])
        for (_, stored), answer in zip(taken, answers, strict=True):
            if stored.done():
                continue
            if isinstance(answer, int):
                stored.set_result(answer)
            else:
                stored.set_exception(answer)
        del self._sizes[turn]
        if self._waiting:
            self._begin_soon()


async def work(
    home: StateDirectory, slots: int, name: str, sizes: tuple[int, int], *, batched: bool
) -> None:
    tokens = itertools.count()
    claim, complete = (b"x" * size for size in sizes)
    async with (
        assembly.join(home, "worker", kinds=(KIND,)) as connection,
        asyncio.TaskGroup() as tasks,
    ):
        log, mesh = connection.engine.log, home.mesh().mesh
        calls = job_subjects.calls_of(mesh, "normal", KIND, below=False)

        async def write_single(record: Append) -> int:
            return await log.append(
                record.subject,
                record.payload,
                message_id=record.message_id,
                expected_last=record.expected_last,
            )

        write: Write = BareTurns(log, tasks).write if batched else write_single

        async with log.work(calls, name=queue_name(KIND, "normal")) as queue:

            async def attend() -> None:
                while True:
                    queue.grant(1)
                    delivery = await queue.next()
                    subject = job_subjects.job(mesh, KIND, delivery.record.subject[-64:])
                    try:
                        seq = await write(Append(subject, claim, f"{name}{next(tokens)}", 0))
                        await write(Append(subject, complete, f"{name}{next(tokens)}", seq))
                    except AntiphonError as problem:
                        print(f"bare: {problem}", file=sys.stderr, flush=True)
                        continue
                    delivery.ack()

            for _ in range(slots):
                tasks.create_task(attend())
            print(f"ready {time.process_time()}", flush=True)
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("how", choices=["single", "batched"])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--sizes", type=int, nargs=2, required=True)
    args = parser.parse_args()
    home, batched = StateDirectory(args.home), args.how == "batched"
    run(work(home, args.slots, args.name, tuple(args.sizes), batched=batched))


if __name__ == "__main__":
    main()
