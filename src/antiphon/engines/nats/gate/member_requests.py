"""The gate's subscriptions to members' requests, each member with its own subjects and rate.

One subscription per member and service, so that the gate can drop one that floods
(`metered_subscription`) and keep serving all others. The gate listens with its own connection in
the members' account, where the server enforces a subscription's limit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from msgspec import Struct

from antiphon.engines.nats.connection import wire
from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.metered_subscription import MeteredSubscription
from antiphon.errors import EngineDenied, Unavailable


class Service(Struct, frozen=True):
    """What is served under a verb, and how many requests of one member in an interval."""

    verb: str
    handler: wire.Handler
    bound: int
    refuse: wire.Handler | None = None
    queue: str = ""
    """Several gates of one mesh share its requests."""
    denied: Callable[[EngineDenied], None] | None = None


class MemberRequests:
    """One gate's subscriptions; without a list of members there is one for all."""

    def __init__(self, connection: Connection, mesh: str, users: Iterable[str] = ("*",)) -> None:
        self._connection = connection
        self._mesh = mesh
        self._users = dict.fromkeys(users)
        self._listeners: dict[str, list[MeteredSubscription]] = {}
        self._services: dict[str, Service] = {}

    def serve(self, service: Service) -> Callable[[], None]:
        """Listen to every member's requests for it; returns the undo."""
        self._services[service.verb] = service
        self._listeners[service.verb] = [self._listen(one, service) for one in self._users]

        def stop() -> None:
            del self._services[service.verb]
            for listener in self._listeners.pop(service.verb):
                listener.close()

        return stop

    async def round_trip(self) -> None:
        """Return when all later requests are received, unless the server is unreachable."""
        with contextlib.suppress(Unavailable):  # subscriptions are replayed later
            await self._connection.round_trip()

    def admit(self, user: str) -> None:
        """Listen to one more member; again changes nothing."""
        if user in self._users or "*" in self._users:
            return
        self._users[user] = None
        for verb, service in self._services.items():
            self._listeners[verb].append(self._listen(user, service))

    def _listen(self, user: str, service: Service) -> MeteredSubscription:
        return MeteredSubscription(
            self._connection,
            gate_subject(self._mesh, user, service.verb),
            service.handler,
            bound=service.bound,
            refuse=service.refuse,
            queue=service.queue,
            denied=service.denied,
        )
