"""A connection to a mesh that cannot be reached: a key in use, a clock, and no engine.

What is written goes to the outbox; every question to the engine raises why it cannot be reached.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, cast

from antiphon.assembly.mesh_connection import KeyInUse, MeshConnection, place
from antiphon.errors import Unavailable
from antiphon.runtime.identity.host_clock import SystemEntropy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from antiphon.ports import Engine, EngineInfo
    from antiphon.runtime.identity.state_directory import StateDirectory
    from antiphon.runtime.replica.replica import Replica


class _Absent:
    """A part of an engine that cannot be asked anything."""

    reads: tuple[str, ...] = ()
    user = ""

    def __init__(self, why: Unavailable) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> NoReturn:
            raise Unavailable(self._why.message, hint=self._why.hint)

        return fail


class AbsentEngine:
    """`ports.Engine` of a server that cannot be reached."""

    connected = False
    paused_s = 0.0
    reconnects = 0
    gate = None

    def __init__(self, why: Unavailable) -> None:
        """Everything that is asked raises `why`."""
        self.why = why
        part: Any = _Absent(why)
        self.log = self.leases = self.bus = self.blobs = self.messages = part

    async def info(self) -> EngineInfo:
        """See `ports.Engine`."""
        raise Unavailable(self.why.message, hint=self.why.hint)

    async def close(self) -> None:
        """See `ports.Engine`."""


@contextmanager
def known_replica(home: StateDirectory, connection: MeshConnection) -> Iterator[Replica]:
    """The machine's replica as far as it came; `Unavailable` if it has none."""
    from antiphon.runtime.replica.replica import Replica

    if not home.replica.is_file():
        why = connection.engine.why if isinstance(connection.engine, AbsentEngine) else None
        words = "the mesh cannot be reached" if why is None else why.message
        raise Unavailable(
            f"{words}; this machine has no replica to read meanwhile",
            hint="'antiphon outbox' lists what waits here",
        )
    session = connection.session
    replica = Replica(home.replica, mesh=session.mesh, protocol=session.protocol, read_only=True)
    try:
        yield replica
    finally:
        replica.close()


@asynccontextmanager
async def offline(
    home: StateDirectory, role: str, *, key: str | None, why: Unavailable
) -> AsyncIterator[tuple[MeshConnection, KeyInUse]]:
    """A connection without an engine, with the named key or the first free one of the role.

    The key stays locked while the block runs, also when an engine is reached meanwhile.
    """
    described, entropy = home.mesh(), SystemEntropy()
    held = home.key(key, entropy) if key else home.free_key(role, entropy)
    try:
        alias = home.access().alias
        connection = place(
            cast("Engine", AbsentEngine(why)),
            described.mesh,
            held.keyring,
            f"{alias}/{held.name}" if alias else held.name,
            held.mark,
        )
        try:
            yield connection, KeyInUse(held, connection.session.author)
        finally:
            connection.session.author.settle()
    finally:
        held.release()
