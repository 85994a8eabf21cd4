"""A worker's side of a rendezvous: the announcements of one priority, as a `ports.WorkQueue`.

The worker uses it like an engine's queue. It is dry when no announcement is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from antiphon.errors import Unavailable

if TYPE_CHECKING:
    from antiphon.core.families.jobs.priority import Priority
    from antiphon.runtime.worker.announced_jobs import AnnouncementDelivery
    from antiphon.runtime.worker.rendezvous import Rendezvous


class RendezvousQueue:
    """`ports.WorkQueue` over a rendezvous's announcements of one priority."""

    def __init__(self, rendezvous: Rendezvous, priority: Priority) -> None:
        """Hands out nothing before it is granted a credit."""
        self.credits = 0
        self.is_dry = False
        self._rendezvous = rendezvous
        self._priority = priority
        self._told: Callable[[], None] = lambda: None

    @property
    def loan_s(self) -> float:
        """How long others assume that a job is being worked on."""
        return self._rendezvous.loan_s

    def watch(self, told: Callable[[], None]) -> None:
        """See `ports.WorkQueue.watch`."""
        self._told = told

    def grant(self, count: int) -> None:
        """Allow `count` more deliveries."""
        if count > 0 and not self._rendezvous.is_closed:
            self.credits += count
            self.is_dry = False
            self._rendezvous.news.set()
            self._rendezvous.presence.changed()

    def ask(self) -> None:
        """See `ports.WorkQueue.ask`: `next` looks again."""
        if self.credits and not self.is_dry:
            self._rendezvous.news.set()

    def revoke_credits(self) -> None:
        """Ask for nothing more."""
        self.credits = 0
        self.is_dry = False
        self._rendezvous.presence.changed()

    async def next(self) -> AnnouncementDelivery:
        """Wait until an announcement is due."""
        rendezvous = self._rendezvous
        while True:
            if rendezvous.is_closed:
                raise Unavailable("the queue is closed")
            rendezvous.news.clear()
            pause_s = None
            if self.credits > 0:
                call, pause_s = rendezvous.pick(self._priority)
                if call is None:
                    self._has_nothing()
                elif rendezvous.presence.free() > 0:
                    self.credits -= 1
                    self.is_dry = False
                    return rendezvous.hand_out(call)
                else:
                    # Granted while there was room, which another queue's job has taken since.
                    self.revoke_credits()
            try:
                async with asyncio.timeout(pause_s):
                    await rendezvous.news.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Does nothing: the code that opened the rendezvous closes it."""
        self.revoke_credits()

    def _has_nothing(self) -> None:
        if not self.is_dry:
            self.is_dry = True
            self._told()
