"""Messages over HTTP: sent by the node's key, and read from the inboxes of its own agents.

Whoever may send messages of a kind can have the node send them, as its agent `http`: the receiver
sees that the node signed. An inbox is its owner's. It is read with the operator's token, or with a
token of the same key that is narrowed to no project: messages of every kind are in one inbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from blake3 import blake3

from antiphon.core.bar_tokens.bar_token import EVERY_PROJECT
from antiphon.core.messages import envelope as envelopes
from antiphon.core.record.ids import agent_address, check_agent
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.messages.message_gate import Reading
from antiphon.sdk.durations import seconds
from antiphon.sdk.http import models
from antiphon.sdk.messages.open_messages import OpenMessages
from antiphon.sdk.queries.page import Query

if TYPE_CHECKING:
    from antiphon.core.bar_tokens.bar_token import Bearer
    from antiphon.runtime.messages.message_client import MessageClient
    from antiphon.sdk.mesh import Mesh

AGENT: Final = "http"
"""The agent of the node that sends what comes over HTTP."""
LEASE_S: Final = (1.0, 3_600.0)


class NodeInbox:
    """The messages of one node's program."""

    def __init__(self, mesh: Mesh) -> None:
        """Nothing is opened before the first request."""
        self._mesh = mesh
        self._opened: OpenMessages | None = None

    async def send(
        self, bearer: Bearer, body: models.SendBody, *, key: str = ""
    ) -> models.MessageSent:
        """Send a message; with a key, the same again is the same message."""
        options: dict[str, Any] = {"ttl": body.ttl} if body.ttl is not None else {}
        if key:
            # A key is its party's, as that of a job.
            options["key"] = blake3(f"{bearer.party} {key}".encode()).hexdigest()
        id_ = await self._mesh.messages.send(
            body.to,
            body.payload,
            kind=body.kind,
            thread=body.thread,
            priority=body.priority,
            in_reply_to=body.in_reply_to,
            agent=AGENT,
            **options,
        )
        return models.MessageSent(id=id_, sender=agent_address(self._mesh.connection.did, AGENT))

    async def threads(
        self, bearer: Bearer, *, agent: str, limit: int, after: str
    ) -> models.ThreadList:
        """A page of the threads of an inbox."""
        client, address = self._client(bearer, agent or None)
        found = Query("threads", address).cut(
            await client.threads(),
            lambda one: f"{one.oldest_ms:020} {one.thread}",
            after=after,
            limit=limit,
        )
        names = models.ThreadView.__struct_fields__
        items = [models.ThreadView(**{name: getattr(one, name) for name in names}) for one in found]
        return models.ThreadList(items=items, next=found.next)

    async def take(self, bearer: Bearer, body: models.TakeBody) -> models.TakenMessages:
        """Hand out messages, each until its lease ends."""
        client, address = self._client(bearer, body.agent)
        lease_s = min(max(seconds(body.lease), LEASE_S[0]), LEASE_S[1])
        asked = Reading(
            session=self._messages().session,
            limit=body.limit,
            lease_ms=round(lease_s * 1000),
            wait_ms=round(body.wait * 1000),
            thread=body.thread,
        )
        shown: list[models.MessageView] = []
        for one in await client.read(asked):
            try:
                opened = envelopes.open_stored(
                    one.envelope, address, mesh=self._mesh.connection.session.mesh
                )
            except Malformed:
                continue  # nobody signed it: it becomes a dead letter
            said = opened.body
            shown.append(
                models.MessageView(
                    id=one.id,
                    receipt=one.revision,
                    attempt=one.attempt,
                    sender=envelopes.sender_of(opened),
                    to=said.to,
                    kind=said.kind,
                    thread=said.thread,
                    priority=said.priority,
                    in_reply_to=said.in_reply_to,
                    sent_ms=opened.at_ms,
                    leased_until_ms=one.lease_ms,
                    payload=msgspec.json.decode(said.payload),
                )
            )
        return models.TakenMessages(items=shown)

    async def ack(self, bearer: Bearer, id_: str, body: models.AckBody) -> models.Acknowledged:
        """A message was handled; again changes nothing."""
        client, _ = self._client(bearer, body.agent)
        await client.ack(id_, body.receipt)
        return models.Acknowledged(id=id_)

    def _client(self, bearer: Bearer, agent: str | None) -> tuple[MessageClient, str]:
        connection = self._mesh.connection
        if bearer.holder.startswith("did:") and bearer.holder != connection.did:
            raise Rejected(
                "an inbox is read by its own key, and by whoever runs this node",
                reason="not_owner",
                hint="read yours with your own key: antiphon msg read",
            )
        if bearer.project != EVERY_PROJECT:
            raise Rejected(
                "an inbox has messages of every kind, and the token is for one project",
                reason="project",
                hint="make one with --project '*'",
            )
        name = check_agent(agent or connection.agent)
        return self._messages().client(name), agent_address(connection.did, name)

    def _messages(self) -> OpenMessages:
        if self._opened is None:
            self._opened = OpenMessages(self._mesh.connection.opened, self._mesh.messages.send)
            self._mesh.connection.on_close(self._opened.close)
        return self._opened
