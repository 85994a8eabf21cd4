"""How this process connects to a mesh, by its settings."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from antiphon.core.policy.circuit_breaker import CircuitBreaker
from antiphon.errors import Misconfigured
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory
from antiphon.settings import MEMORY, Settings, load_as


class Environment(Settings, frozen=True):
    """The settings of this process, and what follows from them."""

    @property
    def token(self) -> str | None:
        """What to log in to the engine with, instead of the state directory's login."""
        return None if self.engine_token is None else self.engine_token.value

    def make_breaker(self) -> CircuitBreaker | None:
        """The circuit breaker of one engine; None where it is switched off."""
        if not self.breaker:
            return None
        return CircuitBreaker(failures=self.breaker_failures, reset_s=self.breaker_reset_s)

    def require_server(self) -> None:
        """`Misconfigured` where this process's mesh is inside itself."""
        if self.is_in_memory:
            raise Misconfigured(
                "ANTIPHON_ENGINE=memory: such a mesh exists inside one program only, and this needs"
                " a server",
                hint="unset ANTIPHON_ENGINE",
            )

    def key_for(self, role: str) -> str | None:
        """The key that the process's worker or full node uses; None for a free one."""
        return f"{self.node}-{role}" if self.node else None

    @property
    def is_in_memory(self) -> bool:
        """Whether a mesh is inside this process unless something else is asked for."""
        return self.engine == MEMORY

    def state_directory(self, explicit: Path | None) -> StateDirectory:
        """The state directory to use, with its engine and replica as set."""
        self.require_server()
        found = StateDirectory.find(explicit)
        if self.engine is None and self.replica is None:
            return found
        return _OverriddenHome(found.path, engine=self.engine, replica=self.replica)

    def require_only_mesh(self, home: StateDirectory) -> None:
        """`Misconfigured` if a state directory belongs to another mesh than ANTIPHON_ONLY_MESH."""
        if self.only_mesh is None:
            return
        described = home.mesh()
        if described.mesh != self.only_mesh:
            raise Misconfigured(
                f"{home.path} belongs to mesh {described.mesh}, but ANTIPHON_ONLY_MESH allows only"
                f" {self.only_mesh}",
                hint="use that mesh's state directory, or change ANTIPHON_ONLY_MESH",
            )


def read_environment() -> Environment:
    """The environment as it is now."""
    return load_as(Environment)


class _OverriddenHome(StateDirectory):
    """A state directory with values overridden by the environment."""

    def __init__(self, path: Path, *, engine: str | None, replica: Path | None) -> None:
        super().__init__(path)
        self._engine = engine
        self._replica = replica

    def mesh(self) -> MeshFile:
        """The mesh, at the engine that was set."""
        described = super().mesh()
        return (
            described if self._engine is None else structs.replace(described, engine=self._engine)
        )

    @property
    def replica(self) -> Path:
        """The replica's file."""
        return super().replica if self._replica is None else self._replica


__all__ = ["Environment", "read_environment"]
