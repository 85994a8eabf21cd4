"""A bounded herd of worker processes: killed, stopped, let go on, replaced; all ended at the end.

Only processes that were started here are ever signalled, by their own handle.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Self

import msgspec

from chaos import worker_process
from chaos.witness import Reader, Tally, Witness
from chaos.worker_process import Orders

LOOK_S: Final = 0.02
AIMED: Final = 0.75
"""Of all strikes, the share that is aimed at a worker in the middle of a job."""
LAST_WORDS: Final = 40
LOADED_LATE: Final = (
    "antiphon.engines.nats",
    "antiphon.assembly.running",
    "antiphon.assembly.logins",
)
"""What a worker would load after the fork: once, before it, is enough for all."""


class Herd:
    """Keeps `size` workers up, whatever happens to them."""

    def __init__(self, orders: Sequence[Orders], size: int, chance: random.Random) -> None:
        """Processes get the orders in turn; `log` names a directory, each has a file in it."""
        self._orders = orders
        self.size = size
        self._chance = chance
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["chaos.worker_process", *LOADED_LATE])
        self._alive: dict[int, BaseProcess] = {}
        self._logs: dict[int, Path] = {}
        self._stopped: dict[int, asyncio.TimerHandle] = {}
        self._reader = Reader(orders[0].witness)
        self._witness = Witness(orders[0].witness)
        self.tally = Tally()
        self.kills = self.stops = self.hits = self.started = 0
        self.crashed: list[str] = []
        """Last words of processes that ended without being asked to."""
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._keeping = asyncio.ensure_future(self._keep())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        for timer in self._stopped.values():
            timer.cancel()
        for pid, process in self._alive.items():
            process.kill()  # a stopped one dies as well
            process.join()
            self._witness.note("dead", pid=pid)
        self._alive.clear()
        self.look()
        self._reader.close()
        self._witness.close()

    # --- keeping up -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            for pid, process in list(self._alive.items()):
                if process.exitcode is not None:
                    self._bury(pid, process)
                    self._note_crash(pid, process.exitcode)
            while len(self._alive) < self.size:
                orders = self._orders[self.started % len(self._orders)]
                self.started += 1
                log = orders.log / f"worker-{self.started}.log"
                orders = msgspec.structs.replace(orders, log=log)
                process = await asyncio.to_thread(self._start, orders)
                assert process.pid is not None
                self._logs[process.pid] = log
                self._alive[process.pid] = process
            self.look()
            await asyncio.sleep(LOOK_S)

    def _start(self, orders: Orders) -> BaseProcess:
        """In a thread: forking waits for the fork server."""
        process = self._context.Process(target=worker_process.main, args=(orders,), daemon=True)
        process.start()
        return process

    def _bury(self, pid: int, process: BaseProcess) -> None:
        process.join()
        del self._alive[pid]
        timer = self._stopped.pop(pid, None)
        if timer is not None:
            timer.cancel()
        self._witness.note("dead", pid=pid)

    def _note_crash(self, pid: int, code: int) -> None:
        words = _last_words(self._logs[pid])
        self.crashed.append(f"process {pid} ended with {code}: {words}")
        print(self.crashed[-1], file=sys.stderr, flush=True)

    def look(self) -> None:
        """Read what the witness wrote meanwhile."""
        self.tally.add(self._reader.new())

    async def all_up(self, within_s: float = 60.0) -> None:
        """Wait until every worker has come up."""
        async with asyncio.timeout(within_s):
            while len(self.tally.ready & self._alive.keys()) < self.size:
                await asyncio.sleep(LOOK_S)

    @property
    def running(self) -> list[int]:
        """Processes that are up and not stopped."""
        return [pid for pid in self._alive if pid in self.tally.ready and pid not in self._stopped]

    # --- striking -------------------------------------------------------------------------------

    def _target(self) -> int | None:
        self.look()
        candidates = self.running
        if len(candidates) <= self.size // 2:
            return None  # somebody has to do the work
        busy = [pid for pid in candidates if pid in self.tally.busy]
        if busy and self._chance.random() < AIMED:
            return self._chance.choice(busy)
        return self._chance.choice(candidates)

    def kill_one(self) -> bool:
        """SIGKILL; False if too few are up."""
        pid = self._target()
        if pid is None:
            return False
        self.kills += 1
        self.hits += pid in self.tally.busy
        process = self._alive[pid]
        process.kill()
        self._bury(pid, process)
        return True

    def stop_one(self, for_s: float) -> bool:
        """SIGSTOP, and SIGCONT after a while; False if too few are up."""
        pid = self._target()
        if pid is None:
            return False
        self.stops += 1
        self.hits += pid in self.tally.busy
        os.kill(pid, signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        self._stopped[pid] = loop.call_later(for_s, self._let_go_on, pid)
        return True

    def _let_go_on(self, pid: int) -> None:
        self._stopped.pop(pid, None)
        if pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _last_words(log: Path) -> str:
    if not log.exists():
        return "it said nothing"
    return "\n".join(log.read_text(errors="replace").splitlines()[-LAST_WORDS:])
