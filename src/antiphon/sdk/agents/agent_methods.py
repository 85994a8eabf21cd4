"""Which agent this process is. A node may run several; each has a name of its own."""

from __future__ import annotations

from antiphon.core.record.ids import agent_address


class AgentMethods:
    """A part of `Mesh`."""

    _agent: str

    @property
    def did(self) -> str:
        """The key that this process signs with."""
        raise NotImplementedError

    @property
    def agent(self) -> str:
        """The name of this process's agent on its node."""
        return self._agent

    @property
    def address(self) -> str:
        """Where others reach this agent: its node and its name."""
        return agent_address(self.did, self._agent)
