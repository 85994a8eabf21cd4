"""A process of a run that can be killed, stopped and started again, and how such a one begins.

Only what was started here is ever signalled, by its own handle.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from antiphon import telemetry
from chaos.network import namespaces

PRELOADED: Final = ("antiphon.engines.nats", "antiphon.assembly.logins")
"""Modules that every process would load after the fork: loaded once, before it."""
_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that forked it ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def begin(log: Path, *, network: Path | None = None, level: str = "error") -> None:
    """What every forked process does first: it ends with its parent, and writes to its log."""
    die_with_parent()
    if network is not None:
        namespaces.enter(network)
        namespaces.end_with_owner(network)
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    telemetry.configure(level, "text")
    print(f"--- {os.getpid()}", file=sys.stderr, flush=True)


class ChildProcess:
    """Runs `main(config)`; a killed one starts again with the same config."""

    def __init__(
        self, main: Callable[[Any], None], config: Any, preloaded: Sequence[str] = ()
    ) -> None:
        """Nothing runs before `start`; `preloaded` are modules that are loaded before the fork."""
        self._main = main
        self._config = config
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([main.__module__, *PRELOADED, *preloaded])
        self._process: BaseProcess | None = None

    def start(self) -> None:
        """Fork it; this waits for the fork server."""
        self._process = self._context.Process(target=self._main, args=(self._config,), daemon=True)
        self._process.start()

    @property
    def running(self) -> BaseProcess | None:
        """The process, if it has not ended."""
        return self._process if self._process is not None and self._process.is_alive() else None

    @property
    def exitcode(self) -> int | None:
        """What it ended with; None if it runs, or never did."""
        return None if self._process is None else self._process.exitcode

    def kill(self) -> None:
        """End it at once, whatever it is doing; safe twice, and ends a stopped one too."""
        if self._process is not None:
            self._process.kill()
            self._process.join()

    def join(self, within_s: float) -> None:
        """Wait for its end, at most so long."""
        if self._process is not None:
            self._process.join(within_s)

    async def stand_still(self, for_s: float) -> None:
        """Stop it and let it go on, as a closed laptop does."""
        alive = self.running
        pid = None if alive is None else alive.pid
        if pid is None or alive is None:
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            if alive.is_alive():
                with suppress(ProcessLookupError):  # killed in between
                    os.kill(pid, signal.SIGCONT)
