"""Which agent this process is. A node may run several; each has a name of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.core.record.ids import DEFAULT_AGENT, agent_address
from antiphon.sdk.agents.presence_methods import PresenceMethods

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from antiphon.assembly import MeshConnection


class AgentMethods(PresenceMethods):
    """A part of `Mesh`."""

    _agent: str

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        raise NotImplementedError

    @property
    def connection(self) -> MeshConnection:
        """This process's connection to the mesh."""
        raise NotImplementedError

    @property
    def agent(self) -> str:
        """The name of this process's agent on its node."""
        return self._agent

    @property
    def address(self) -> str:
        """Where others reach this agent: its node and its name."""
        return agent_address(self.did, self._agent)

    def _named(self, connection: MeshConnection) -> MeshConnection:
        """A connection of this process's agent."""
        return replace(connection, agent=self._agent)

    async def _announce(self, stack: AsyncExitStack) -> None:
        """Be somebody whom others can look for; a process that names no agent is nobody."""
        if self._agent != DEFAULT_AGENT:
            from antiphon.assembly import announcing

            await stack.enter_async_context(announcing(self.connection))
