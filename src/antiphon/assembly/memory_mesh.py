"""A mesh inside one process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from antiphon.assembly.mesh_connection import MeshConnection, place
from antiphon.core.authority.rules import Rules
from antiphon.runtime.identity import genesis
from antiphon.runtime.identity.host_clock import SystemClock, SystemEntropy
from antiphon.runtime.identity.key_files import SEED_BYTES, SeedKeyring
from antiphon.runtime.log.author import NoMark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from antiphon.engines.memory import MemoryEngine
    from antiphon.engines.memory.faults import Faults
    from antiphon.ports import Keyring, WallClock


class MemoryMesh:
    """A mesh inside this process: nothing to install, nothing to clean up."""

    def __init__(self, *, wall: WallClock | None = None, faults: Faults | None = None) -> None:
        """Create it with a new owner key. A test may have its own clock and its own faults."""
        from antiphon.engines.memory import MemoryServer

        entropy = SystemEntropy()
        self._clock = wall or SystemClock()
        self._faults = faults
        self.engines: dict[str, MemoryEngine] = {}
        """By alias, the newest connection."""
        self._server = MemoryServer(self._clock)
        self.owner = SeedKeyring(entropy.token(SEED_BYTES))
        recovery = SeedKeyring(entropy.token(SEED_BYTES))
        self.signed_genesis = genesis.sign(
            self.owner,
            self._clock,
            name="memory",
            recovery=recovery.did,
            rules=Rules(authority="open"),
        )

    @asynccontextmanager
    async def connection(
        self, alias: str, keyring: Keyring | None = None
    ) -> AsyncIterator[MeshConnection]:
        """A connection to this mesh with a new key (or the one given)."""
        from antiphon.engines.memory import MemoryEngine

        engine = MemoryEngine(self._server, self.signed_genesis.mesh, faults=self._faults)
        self.engines[alias] = engine
        try:
            await genesis.write(engine.log, self.signed_genesis)
            own = keyring or SeedKeyring(SystemEntropy().token(SEED_BYTES))
            mesh = self.signed_genesis.mesh
            yield place(engine, mesh, own, alias, NoMark(), wall=self._clock)
        finally:
            await engine.close()
