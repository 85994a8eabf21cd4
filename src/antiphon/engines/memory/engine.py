"""One node's connection to one mesh on a memory server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.engines.memory.blobs import MemoryBlobs
from antiphon.engines.memory.bus import MemoryBus
from antiphon.engines.memory.connection import Connection
from antiphon.engines.memory.faults import Faults
from antiphon.engines.memory.leases import MemoryLeases
from antiphon.engines.memory.messages import MemoryMessages
from antiphon.engines.memory.oplog import MemoryLog
from antiphon.engines.memory.server import LOAN_S, MemoryServer
from antiphon.errors import Misconfigured
from antiphon.ports import Engine, EngineInfo


class MemoryEngine:
    """`ports.Engine`. Raises `Unavailable` if the server is down, `Misconfigured` without a mesh.

    `faults` acts on this connection only; `loan_s` applies to queues that this one makes.
    """

    def __init__(
        self,
        server: MemoryServer,
        mesh: str,
        *,
        create: bool = True,
        faults: Faults | None = None,
        loan_s: float = LOAN_S,
    ) -> None:
        self._connection = Connection(server.reach, faults=faults)
        try:
            state = server.mesh(mesh, create=create)
        except Misconfigured:
            self.crash()
            raise
        self.mesh = mesh
        self.log = MemoryLog(self._connection, state, loan_s=loan_s)
        self.leases = MemoryLeases(self._connection, state.leases)
        self.bus = MemoryBus(self._connection, state.bus)
        self.blobs = MemoryBlobs(self._connection, state.blobs)
        self.messages = MemoryMessages(self._connection, state.messages)
        self.gate = None

    @property
    def connected(self) -> bool:
        """Whether the server can be reached right now."""
        return self._connection.is_attached

    @property
    def paused_s(self) -> float:
        """Nobody is paused here."""
        return 0.0

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        return self._connection.reconnects

    async def info(self) -> EngineInfo:
        """Report that nothing here outlives the process."""
        info = EngineInfo(
            name="memory",
            version="1",
            durability="none",
            replicas=1,
            warnings=("everything is lost when the process ends",),
        )
        return await self._connection.read("info", lambda: info)

    async def close(self) -> None:
        """Close cleanly: deliveries that nobody took are given back."""
        self._connection.close(in_order=True)
        await asyncio.sleep(0)

    # --- faults, for tests and the simulator ------------------------------------------------

    @property
    def is_attached(self) -> bool:
        """Whether the server runs and this connection to it is whole."""
        return self._connection.is_attached

    def crash(self) -> None:
        """The process died: nothing is given back, loans and leases run out by themselves."""
        self._connection.close(in_order=False)

    def sever(self) -> None:
        """Cut this connection; the server and the others keep running."""
        self._connection.sever()

    def heal(self) -> None:
        """Undo `sever`."""
        self._connection.heal()

    def pause(self) -> None:
        """Stop this node as SIGSTOP does: it notices nothing and its loans run out."""
        self._connection.pause()

    def resume(self) -> None:
        """Undo `pause`; what queued up meanwhile arrives."""
        self._connection.resume()


if TYPE_CHECKING:

    def _as_engine(engine: MemoryEngine) -> Engine:
        return engine  # the type checker proves here that the whole port is implemented
