"""A machine of the demonstration: a state directory with a key of its own, and a worker process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec

from antiphon.errors import Unavailable
from antiphon.processes.owned_process import start_owned
from antiphon.runtime.identity.state_directory import StateDirectory

if TYPE_CHECKING:
    from pathlib import Path

TASKS: Final = "example"
"""The example tasks, as `antiphon worker` knows them."""
READY_S: Final = 60.0
ENDING_S: Final = 10.0


class Machine:
    """Has joined the mesh, and runs a worker."""

    def __init__(self, name: str, home: StateDirectory, process: Process, worker: str) -> None:
        self.name = name
        self.home = home
        self.worker = worker
        """The key that its worker signs with."""
        self._process = process

    @classmethod
    async def start(cls, name: str, directory: Path) -> Self:
        """Start the worker of a machine that has joined in this directory."""
        process = await start_owned(
            *(sys.executable, "-m", "antiphon", "worker", TASKS, "--slots", "8", "--json"),
            env={**os.environ, "ANTIPHON_HOME": str(directory)},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
        )
        try:
            async with asyncio.timeout(READY_S):
                worker = await _worker_of(process)
        except BaseException:
            process.kill()
            raise
        return cls(name, StateDirectory(directory), process, worker)

    def kill(self) -> None:
        """End its worker as a power cut would."""
        with suppress(ProcessLookupError):
            self._process.kill()

    def stall(self) -> None:
        """Stop its worker in the middle of whatever it does."""
        self._process.send_signal(signal.SIGSTOP)

    async def end(self) -> None:
        """End its worker, if it still runs."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
                self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(ENDING_S):
                    await self._process.communicate()
        self.kill()
        await self._process.wait()


async def _worker_of(process: Process) -> str:
    """The worker's key, from the first line that it prints."""
    line = await process.stdout.readline() if process.stdout is not None else b""
    if not line:
        raise Unavailable(
            "a worker of the demonstration did not start",
            hint="antiphon doctor checks this machine",
        )
    ready: dict[str, str] = msgspec.json.decode(line)
    return ready["node"]
