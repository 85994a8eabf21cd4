"""The gate's subscriptions to members' requests, each member with its own subjects and rate.

One subscription per member and verb, so that the gate can drop one that floods
(`metered_subscription`) and keep serving all others. The gate listens with its own connection in
the members' account, where the server enforces a subscription's limit. What is received goes
through one guard (`request_guard`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

from antiphon.engines.nats.connection.connection import Connection
from antiphon.engines.nats.connection.gate_subjects import gate_subject
from antiphon.engines.nats.connection.metered_subscription import MeteredSubscription
from antiphon.engines.nats.gate.request_guard import Handlers, RequestGuard, Service
from antiphon.errors import Unavailable
from antiphon.guard import Guard


class MemberRequests:
    """One gate's subscriptions; without a list of members there is one for all."""

    def __init__(
        self,
        connection: Connection,
        mesh: str,
        users: Iterable[str] = ("*",),
        *,
        answers: Connection | None = None,
        party_of: Callable[[str], str] = str,
        guard: Guard | None = None,
    ) -> None:
        """`answers` is the connection that sends answers, if it is another one."""
        self.guard = RequestGuard(answers or connection, party_of, guard or Guard())
        self._connection = connection
        self._mesh = mesh
        self._users = dict.fromkeys(users)
        self._listeners: dict[str, list[MeteredSubscription]] = {}
        self._served: dict[str, tuple[Service, Handlers]] = {}

    @contextlib.asynccontextmanager
    async def serving(self, *services: Service) -> AsyncIterator[None]:
        """Serve them for as long as the block runs, over reconnects."""
        tasks: set[asyncio.Task[None]] = set()
        verbs = [verb for service in services for verb in service.verbs]
        async with asyncio.TaskGroup() as group:

            def begin(work: Coroutine[Any, Any, None]) -> None:
                task = group.create_task(work)
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            begin(self.guard.send_refusals())
            for service in services:
                for verb in service.verbs:
                    self._served[verb] = service, self.guard.handlers(service, verb, begin)
                    self._listeners[verb] = [self._listen(one, verb) for one in self._users]
            try:
                with contextlib.suppress(Unavailable):  # subscriptions are replayed later
                    await self._connection.round_trip()
                yield
            finally:
                for verb in verbs:
                    del self._served[verb]
                    for listener in self._listeners.pop(verb):
                        listener.close()
                for task in tasks:
                    task.cancel()

    async def serve(self, *services: Service) -> None:
        """Serve them until cancelled."""
        async with self.serving(*services):
            await asyncio.get_running_loop().create_future()

    def admit(self, user: str) -> None:
        """Listen to one more member; again changes nothing."""
        if user in self._users or "*" in self._users:
            return
        self._users[user] = None
        for verb, listeners in self._listeners.items():
            listeners.append(self._listen(user, verb))

    def _listen(self, user: str, verb: str) -> MeteredSubscription:
        service, (handler, refuse) = self._served[verb]
        return MeteredSubscription(
            self._connection,
            gate_subject(self._mesh, user, verb),
            handler,
            bound=service.limits.heard,
            refuse=refuse,
            queue=service.queue,
            denied=service.denied,
        )
