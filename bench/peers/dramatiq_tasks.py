"""The task of `bench peers` as a Dramatiq actor, for the `dramatiq` command.

Its processes write their id, and the processor time that they had used when they were ready, to
the file that `BENCH_STARTED` names.
"""

from __future__ import annotations

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

QUEUE = "bench"
WORK_S = float(os.environ.get("BENCH_WORK_MS", "0")) / 1000


class StartNotes(dramatiq.Middleware):
    """Notes what a process cost before its first job."""

    def after_process_boot(self, broker: object) -> None:
        del broker
        with open(os.environ["BENCH_STARTED"], "a", encoding="ascii") as notes:  # noqa: PTH123
            notes.write(f"{os.getpid()} {time.process_time()}\n")


def task(number: int) -> None:
    """The same as ours: nothing, or a wait."""
    del number
    if WORK_S:
        time.sleep(WORK_S)


broker = RedisBroker(url=os.environ["BENCH_REDIS_URL"])
broker.add_middleware(StartNotes())
dramatiq.set_broker(broker)
noop = dramatiq.actor(task, queue_name=QUEUE, actor_name="noop")
