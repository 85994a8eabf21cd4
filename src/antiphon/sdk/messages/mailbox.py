"""One process's mail: its clients, its session, and the questions that wait for an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from antiphon.core.messages import register
from antiphon.errors import Misconfigured
from antiphon.runtime.messages.mail_client import MemberMail, OwnMail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.assembly import MeshConnection
    from antiphon.runtime.messages.mail_client import MailClient


class Closes(Protocol):
    """A reader of an inbox."""

    async def aclose(self) -> None:
        """Give back what was not taken."""


class Mailbox:
    """The mail of one open mesh."""

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
        self._clients: dict[str, MailClient] = {}

    def client(self, agent: str) -> MailClient:
        """The inbox of one of this node's agents."""
        known = self._clients.get(agent)
        if known is None:
            known = self._clients[agent] = self._open(agent)
        return known

    def _open(self, agent: str) -> MailClient:
        session, engine = self.connection.session, self.connection.engine
        if engine.mail is not None:
            return OwnMail(session, engine.mail, agent)
        if engine.gate is None:
            raise Misconfigured("this engine carries no messages")
        return MemberMail(session, engine.gate, self.connection.keyring, agent)

    async def close(self) -> None:
        """Give back what was not handled, and stop."""
        for reader in list(self.readers):
            await reader.aclose()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()
