"""A pool of worker processes that are killed, stopped, resumed and replaced.

Only processes that were started here are ever signalled, by their own handle. All of them are
ended when the pool is left.
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

from chaos.audit.execution_journal import ExecutionTally, JournalReader, JournalWriter
from chaos.cluster import worker_process
from chaos.cluster.worker_process import WorkerConfig

POLL_S: Final = 0.02
AIMED_SHARE: Final = 0.75
"""Of all strikes, the share that is aimed at a worker in the middle of a job."""
LOG_TAIL_LINES: Final = 40
PRELOADED: Final = (
    "antiphon.engines.nats",
    "antiphon.assembly.node_services",
    "antiphon.assembly.logins",
)
"""Modules that every worker would load after the fork: loaded once, before it."""


class WorkerPool:
    """Keeps `size` workers running and replaces those that end."""

    def __init__(self, configs: Sequence[WorkerConfig], size: int, chance: random.Random) -> None:
        """Processes get the configs in turn; each writes its own file in the directory `log`."""
        self._configs = configs
        self.size = size
        self._chance = chance
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["chaos.cluster.worker_process", *PRELOADED])
        self._alive: dict[int, BaseProcess] = {}
        self._logs: dict[int, Path] = {}
        self._stopped: dict[int, asyncio.TimerHandle] = {}
        self._reader = JournalReader(configs[0].journal)
        self._journal = JournalWriter(configs[0].journal)
        self.tally = ExecutionTally()
        self.kills = self.stops = self.hits = self.started = 0
        self.crashed: list[str] = []
        """The ends of the logs of processes that ended by themselves."""
        self._refilling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._refilling = asyncio.ensure_future(self._refill())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.wait([self._refilling])
        for timer in self._stopped.values():
            timer.cancel()
        for pid, process in self._alive.items():
            process.kill()  # this ends a stopped process too
            process.join()
            self._journal.note("dead", pid=pid)
        self._alive.clear()
        self.read_journal()
        self._reader.close()
        self._journal.close()

    # --- starting and replacing -----------------------------------------------------------------

    async def _refill(self) -> None:
        while True:
            for pid, process in list(self._alive.items()):
                if process.exitcode is not None:
                    self._remove(pid, process)
                    self._note_crash(pid, process.exitcode)
            while len(self._alive) < self.size:
                config = self._configs[self.started % len(self._configs)]
                self.started += 1
                log = config.log / f"worker-{self.started}.log"
                config = msgspec.structs.replace(config, log=log)
                process = await asyncio.to_thread(self._start, config)
                assert process.pid is not None
                self._logs[process.pid] = log
                self._alive[process.pid] = process
            self.read_journal()
            await asyncio.sleep(POLL_S)

    def _start(self, config: WorkerConfig) -> BaseProcess:
        """Called in a thread, since forking waits for the fork server."""
        process = self._context.Process(target=worker_process.main, args=(config,), daemon=True)
        process.start()
        return process

    def _remove(self, pid: int, process: BaseProcess) -> None:
        process.join()
        del self._alive[pid]
        timer = self._stopped.pop(pid, None)
        if timer is not None:
            timer.cancel()
        self._journal.note("dead", pid=pid)

    def _note_crash(self, pid: int, code: int) -> None:
        tail = _log_tail(self._logs[pid])
        self.crashed.append(f"process {pid} ended with {code}: {tail}")
        print(self.crashed[-1], file=sys.stderr, flush=True)

    def read_journal(self) -> None:
        """Add what was written to the journal since the last call."""
        self.tally.add(self._reader.read_new())

    async def wait_until_ready(self, within_s: float = 60.0) -> None:
        """Wait until every worker is ready."""
        async with asyncio.timeout(within_s):
            while len(self.tally.ready & self._alive.keys()) < self.size:
                await asyncio.sleep(POLL_S)

    @property
    def running(self) -> list[int]:
        """Processes that are ready and not stopped."""
        return [pid for pid in self._alive if pid in self.tally.ready and pid not in self._stopped]

    # --- killing and stopping -------------------------------------------------------------------

    def _target(self) -> int | None:
        self.read_journal()
        candidates = self.running
        if len(candidates) <= self.size // 2:
            return None  # the others have to do the work
        busy = [pid for pid in candidates if pid in self.tally.busy]
        if busy and self._chance.random() < AIMED_SHARE:
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
        self._remove(pid, process)
        return True

    def stop_one(self, for_s: float) -> bool:
        """SIGSTOP, and SIGCONT after `for_s`; False if too few are up."""
        pid = self._target()
        if pid is None:
            return False
        self.stops += 1
        self.hits += pid in self.tally.busy
        os.kill(pid, signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        self._stopped[pid] = loop.call_later(for_s, self._resume, pid)
        return True

    def _resume(self, pid: int) -> None:
        self._stopped.pop(pid, None)
        if pid in self._alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _log_tail(log: Path) -> str:
    if not log.exists():
        return "its log is missing"
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
