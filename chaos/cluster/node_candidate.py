"""The processes that take turns as coordinator: killed, stopped, and started again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

from antiphon.runtime.identity.host_clock import SystemEntropy
from antiphon.runtime.identity.state_directory import StateDirectory
from chaos.cluster import node_process
from chaos.cluster.child_process import ChildProcess
from chaos.cluster.node_process import NodeConfig

POLL_S: Final = 0.02
READY_WITHIN_S: Final = 60.0
PRELOADED: Final = (
    "antiphon.assembly.node_services",
    "antiphon.runtime.plans.plan_runner",
    "antiphon.runtime.node.overdue_jobs",
    "antiphon.runtime.node.sealer",
)


class Candidate(ChildProcess):
    """One of them."""

    def __init__(
        self, home: StateDirectory, directory: Path, number: int, *, bar_s: float = 32.0
    ) -> None:
        name = f"candidate-{number}"
        held = home.key(name, SystemEntropy())
        self.did = held.keyring.did
        held.release()
        place = directory / name
        place.mkdir()
        self.config = NodeConfig(
            home=home.path, key=name, replica=place / "replica.db", log=place / "log", bar_s=bar_s
        )
        self._ready = self.config.replica.with_suffix(".ready")
        super().__init__(node_process.main, self.config, PRELOADED)
        self._resuming: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start it, with the key and the replica that it had before."""
        self._ready.unlink(missing_ok=True)
        super().start()

    async def wait_until_ready(self) -> None:
        """Until it has caught up with the log."""
        async with asyncio.timeout(READY_WITHIN_S):
            while not self._ready.exists():
                await asyncio.sleep(POLL_S)

    def kill(self) -> None:
        """End it at once, whatever it is doing."""
        super().kill()
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None

    def stop_for(self, seconds: float) -> None:
        """Stop it; when it is resumed, it still believes that it coordinates."""
        alive = self.running
        if alive is None or alive.pid is None:
            return
        pid = alive.pid
        os.kill(pid, signal.SIGSTOP)
        self._resuming = asyncio.get_running_loop().call_later(seconds, self._resume, pid)

    def _resume(self, pid: int) -> None:
        self._resuming = None
        alive = self.running
        if alive is not None and alive.pid == pid:
            os.kill(pid, signal.SIGCONT)

    def told(self) -> list[str]:
        """What its log says went wrong."""
        if not self.config.log.exists():
            return []
        lines = self.config.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "plan_mismatch" in line or "Traceback" in line]
