"""One process's messages: its clients, its session, and the questions that wait for an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from antiphon.core.messages import register
from antiphon.runtime.messages.message_client import client_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.assembly import MeshConnection
    from antiphon.runtime.messages.message_client import MessageClient


class Closes(Protocol):
    """A reader of an inbox."""

    async def aclose(self) -> None:
        """Give back what was not taken."""


class OpenMessages:
    """The messages of one open mesh."""

    def __init__(self, connection: MeshConnection, send: Callable[..., Awaitable[str]]) -> None:
        """Nothing is sent before the first use."""
        self.connection = connection
        self.send = send
        """`Messages.send`, for replies."""
        session = connection.session
        token = session.entropy.token(8).hex()
        self.session = register.session_name(session.wall.now_ms(), token)
        self.asked: dict[str, asyncio.Future[Any]] = {}
        """Questions of this process, by the message's id."""
        self.readers: set[Closes] = set()
        self._clients: dict[str, MessageClient] = {}

    def client(self, agent: str) -> MessageClient:
        """The inbox of one of this node's agents."""
        known = self._clients.get(agent)
        if known is None:
            opened = self.connection
            known = client_of(opened.session, opened.keyring, agent)
            self._clients[agent] = known
        return known

    async def close(self) -> None:
        """Give back what was not handled, and stop."""
        for reader in list(self.readers):
            await reader.aclose()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
