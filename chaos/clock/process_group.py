"""The processes of `chaos clock`, each with a clock of its own that can be set wrong.

Only processes that were started here are ever signalled, by their own handle. All of them are
ended when the group is left.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import Final, Self

import msgspec

from antiphon.processes.owned_process import start_owned
from chaos.audit.execution_journal import ExecutionTally, JournalReader, JournalWriter
from chaos.clock.fake_clock import FakeClock
from chaos.clock.process import Acked

POLL_S: Final = 0.02
ENDED_WITHIN_S: Final = 10.0
LOG_TAIL_LINES: Final = 30
_acked = msgspec.json.Decoder(Acked).decode


class ClockedProcess:
    """One process, its clock, and the files that it writes."""

    def __init__(self, role: str, name: str, directory: Path, clock: FakeClock) -> None:
        """Not started yet."""
        self.role, self.name, self.clock = role, name, clock
        self.log = directory / f"{name}.log"
        self.own = directory / f"{name}.own"
        """A file for this role alone: acknowledged calls, or a replica."""
        self.child: Process | None = None
        self.is_ending = False

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def log_text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def acked(self) -> list[Acked]:
        """Calls of its own that were acknowledged; whole lines only."""
        if self.role != "caller" or not self.own.exists():
            return []
        *lines, _ = self.own.read_bytes().split(b"\n")
        return [_acked(line) for line in lines]


class ProcessGroup:
    """Starts the processes and reads their journal."""

    def __init__(self, directory: Path, home: Path, preload: Path) -> None:
        """`directory` belongs to this group alone."""
        directory.mkdir(parents=True)
        self._directory, self._home, self._preload = directory, home, preload
        self._journal_file = directory / "journal"
        self._reader = JournalReader(self._journal_file)
        self._journal = JournalWriter(self._journal_file)
        self.tally = ExecutionTally()
        self.processes: list[ClockedProcess] = []
        self.crashed: list[str] = []
        """The ends of the logs of processes that ended by themselves."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        self._reader.close()
        self._journal.close()

    async def start(self, role: str, name: str) -> ClockedProcess:
        """Start one more process, with a clock that is right."""
        clock = FakeClock(self._preload, self._directory / f"clock-{name}")
        process = ClockedProcess(role, name, self._directory, clock)
        await self._launch(process)
        self.processes.append(process)
        return process

    async def restart(self, process: ClockedProcess) -> None:
        """Kill it and start it again under the same clock, wrong or right."""
        await self.end_one(process)
        process.is_ending = False
        await self._launch(process)

    async def _launch(self, process: ClockedProcess) -> None:
        files = {
            "home": self._home,
            "journal": self._journal_file,
            "log": process.log,
            "own": process.own,
            "suspended": process.clock.suspended_file,
        }
        options = [word for key, path in files.items() for word in (f"--{key}", str(path))]
        with process.log.open("ab") as out:
            process.child = await start_owned(
                sys.executable,
                *("-m", "chaos.clock.process", process.role, *options),
                stdout=out,
                stderr=out,
                env=process.clock.environment,
            )

    async def wait_until_ready(self, within_s: float = 60.0) -> None:
        """Wait until every process is ready."""
        async with asyncio.timeout(within_s):
            while not all(process.pid in self.tally.ready for process in self.processes):
                self.read_journal()
                self._find_crashes()
                if self.crashed:
                    return
                await asyncio.sleep(POLL_S)

    def read_journal(self) -> None:
        """Add what was written to the journal since the last call."""
        self.tally.add(self._reader.read_new())

    def active_after(self, process: ClockedProcess, at_ns: int) -> int | None:
        """When this process next did something that the log accepted; None: not yet."""
        if process.role == "caller":
            return next((one.at_ns for one in process.acked() if one.at_ns >= at_ns), None)
        self.read_journal()
        begun = (run.begun_ns for run in self.tally.executions if run.pid == process.pid)
        return next((when for when in begun if when >= at_ns), None)

    async def suspend(self, process: ClockedProcess, for_s: float) -> None:
        """Stop it, and take that time out of its monotonic clock, as on a suspended machine."""
        assert process.child is not None
        begun = time.monotonic()
        process.child.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            process.clock.add_suspend(time.monotonic() - begun)
            process.child.send_signal(signal.SIGCONT)

    async def end(self) -> None:
        """Kill every process that still runs."""
        self._find_crashes()
        for process in self.processes:
            await self.end_one(process)
        self.read_journal()

    async def end_one(self, process: ClockedProcess) -> None:
        child, process.is_ending = process.child, True
        if child is not None and child.returncode is None:
            child.kill()
            await asyncio.wait_for(child.wait(), ENDED_WITHIN_S)
            self._journal.note("dead", pid=child.pid)

    def _find_crashes(self) -> None:
        for process in self.processes:
            child = process.child
            if child is None or process.is_ending or child.returncode is None:
                continue
            process.is_ending = True
            tail = "\n".join(process.log_text().splitlines()[-LOG_TAIL_LINES:])
            self.crashed.append(f"{process.name} ended with {child.returncode}: {tail}")
            print(self.crashed[-1], file=sys.stderr, flush=True)
