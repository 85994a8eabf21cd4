"""The environment variables that say how this process connects to a mesh.

The same variables as in `antiphon.settings`, which is not loaded while none of them is set:
pydantic takes longer to load than a job takes to submit. The defaults are those of `Settings`; a
test compares them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from antiphon.core.policy.circuit_breaker import FAILURES, RESET_S, CircuitBreaker
from antiphon.errors import Misconfigured
from antiphon.files import PRIVATE_DIRECTORY
from antiphon.runtime.identity.key_files import FileLock, lock_file
from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory


class Environment(Struct, frozen=True, kw_only=True):
    """What is set for this process, or the defaults."""

    mesh: bool = True
    node: str | None = None
    agent: str | None = None
    scope: str | None = None
    engine: str | None = None
    engine_token: str | None = None
    replica: Path | None = None
    breaker: bool = True
    breaker_failures: int = FAILURES
    breaker_reset_s: float = RESET_S

    def __repr__(self) -> str:
        return f"Environment(node={self.node!r}, scope={self.scope!r}, engine={self.engine!r})"

    def make_breaker(self) -> CircuitBreaker | None:
        """The circuit breaker for submissions; None where it is switched off."""
        if not self.breaker:
            return None
        return CircuitBreaker(failures=self.breaker_failures, reset_s=self.breaker_reset_s)

    def require_server(self) -> None:
        """`Misconfigured` where this process's mesh is inside itself."""
        if self.is_in_memory:
            cause = "ANTIPHON_ENGINE=memory" if self.mesh else "ANTIPHON_MESH=off"
            raise Misconfigured(
                f"{cause}: such a mesh exists inside one program only, and this needs a server",
                hint=f"unset {cause.partition('=')[0]}",
            )

    def key_for(self, role: str) -> str | None:
        """The key that the process's worker or full node uses; None for a free one."""
        return f"{self.node}-{role}" if self.node else None

    @property
    def is_in_memory(self) -> bool:
        """Whether a mesh is inside this process unless something else is asked for."""
        return self.engine == "memory" or not self.mesh

    def home(self, explicit: Path | None) -> StateDirectory:
        """The state directory to use, with its engine and replica as set."""
        self.require_server()
        found = StateDirectory.find(explicit)
        if self.engine is None and self.replica is None:
            return found
        return _OverriddenHome(found.path, engine=self.engine, replica=self.replica)

    def require_scope(self, home: StateDirectory) -> None:
        """`Misconfigured` if a state directory belongs to another mesh than ANTIPHON_SCOPE."""
        if self.scope is None:
            return
        described = home.mesh()
        if described.mesh != self.scope:
            raise Misconfigured(
                f"{home.path} belongs to mesh {described.mesh}, but ANTIPHON_SCOPE only allows mesh"
                f" {self.scope}",
                hint="use that mesh's state directory, or change ANTIPHON_SCOPE",
            )


VARIABLES: Final = frozenset(f"ANTIPHON_{name.upper()}" for name in structs.asdict(Environment()))


def read_environment() -> Environment:
    """The environment as it is now."""
    if VARIABLES.isdisjoint(name.upper() for name, value in os.environ.items() if value):
        return Environment()
    from antiphon.settings import load

    chosen = load()
    token = chosen.engine_token
    return Environment(
        mesh=chosen.mesh,
        node=chosen.node,
        agent=chosen.agent,
        scope=chosen.scope,
        engine=chosen.engine,
        engine_token=token.get_secret_value() if token is not None else None,
        replica=chosen.replica,
        breaker=chosen.breaker,
        breaker_failures=chosen.breaker_failures,
        breaker_reset_s=chosen.breaker_reset_s,
    )


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

    def lock_replica(self) -> FileLock:
        """The lock is beside the file: other state directories may name the same file."""
        if self._replica is None:
            return super().lock_replica()
        self._replica.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_DIRECTORY)
        return lock_file(self._replica.with_suffix(".lock"), "the replica has a writer already")


__all__ = ["VARIABLES", "Environment", "read_environment"]
