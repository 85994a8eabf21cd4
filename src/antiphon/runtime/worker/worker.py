"""The light worker: follows control ops, the announcements it receives and its own lanes only.

Here is its life: its queues and slots, how it pauses and how it ends. What it does with each
announcement is in `job_deliveries`.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.core.policy.rate_limit import Rate
from antiphon.core.record import subjects
from antiphon.errors import Unavailable
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.write_turns import WriteTurns
from antiphon.runtime.presence.worker_presence import Traits
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.worker.job_deliveries import JobDeliveries
from antiphon.runtime.worker.queue_credits import Credits
from antiphon.runtime.worker.queue_selection import selecting
from antiphon.runtime.worker.run_slots import RunSlots
from antiphon.runtime.worker.runs.run_figures import RunFigures
from antiphon.runtime.worker.runs.status_sender import StatusSender
from antiphon.runtime.worker.tenure import Leases

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.core.policy.attempt_end import GivingBack
    from antiphon.runtime.executors.executor import Executors
    from antiphon.runtime.outbox.worker_outbox import WorkerOutbox

LONGEST_PAUSE: Final = 8
"""Doublings of the pause while the engine does not return what an op depends on."""


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """How a worker behaves; all its waits and queues are bounded here."""

    slots: int = 8
    """Handlers that run at the same time."""
    drain_s: float = 20.0
    """Seconds that running jobs get to finish when the worker is asked to stop."""
    rates: dict[str, Rate] = {}
    """How many jobs of a kind may begin here in a period of time; kinds that are not named have no
    limit."""
    battery_low: int = 0
    """Percent of its battery at which the worker pauses; 0: never."""
    traits: Traits = Traits()
    """Labels and weight: which jobs with `requires` it can run, and its share under rendezvous."""


class Worker:
    """Runs announced jobs until it is told to stop."""

    def __init__(
        self,
        session: Session,
        executors: Executors,
        settings: WorkerSettings,
        clock: BeatClock | None = None,
    ) -> None:
        """Nothing happens before `run`. Without a clock, it counts beats and hears none."""
        self.session = session
        self.executors = executors
        self.settings = settings
        self.ready = asyncio.Event()
        self._draining = asyncio.Event()
        self._slots = RunSlots(settings.slots)
        self._credits = Credits(self._free, settings.rates, lambda: session.author.is_ahead)
        self._tasks: asyncio.TaskGroup | None = None
        self.paused: set[GivingBack] = set()
        """Why it takes no jobs now; empty: it does."""
        self.clock = clock or BeatClock(session)
        self.status_sender = StatusSender(session, self._spawn)
        self._leases = Leases(session, WriteTurns(session, self._spawn), self._spawn)
        self._deliveries = JobDeliveries(
            executors, self._leases, self._slots, self._credits, self.clock, self.status_sender
        )

    def keep_in(self, outbox: WorkerOutbox) -> None:
        """Have what jobs that go on without the engine make kept on disk."""
        self._deliveries.outbox = outbox

    @property
    def done(self) -> int:
        """Jobs whose accepted end this worker has read."""
        return self._deliveries.done

    @property
    def is_draining(self) -> bool:
        """Whether it was told to stop."""
        return self._draining.is_set()

    @property
    def figures(self) -> RunFigures:
        """What it counts about its runs."""
        return self._deliveries.figures

    @property
    def did(self) -> str:
        """The key that it claims with."""
        return self.session.author.did

    @property
    def kinds(self) -> list[str]:
        """The kinds that it runs."""
        return self.executors.kinds

    @property
    def busy(self) -> int:
        """Slots in use."""
        return min(self.held, self.settings.slots)

    @property
    def held(self) -> int:
        """Jobs in its hands: those that run, and short ones that it claimed ahead."""
        return self._deliveries.held

    async def run(self) -> None:
        """Work until `drain` is called and everything in hand is settled."""
        await self.session.sync_control()
        outbox = self._deliveries.outbox
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            if outbox is not None:  # its jobs may be announced again: their results go first
                await outbox.start(self._spawn)
            pullers = []
            traits, free = self.settings.traits, self._free_slots
            opened = await stack.enter_async_context(
                selecting(self.session, self.executors.kinds, traits, free)
            )
            for kind, priority, queue in opened:
                self._credits.add(queue, kind, priority)
                pullers.append(tasks.create_task(self._deliveries.pull(queue, kind)))
            follower = tasks.create_task(self._follow_control())
            self._credits.top_up()
            self.ready.set()
            await self._draining.wait()
            await self._wind_down(pullers)
            follower.cancel()
            if outbox is not None:
                outbox.close()

    def _free(self) -> int:
        """How many jobs it would take now.

        0 while its clock is ahead: its claims would only be rejected.
        """
        if self._draining.is_set() or self.paused or self.session.author.is_ahead:
            return 0
        return self._slots.room - self.held

    def _free_slots(self) -> int:
        """What it tells others: without what it would claim ahead."""
        return min(self._free(), self.settings.slots - self.busy)

    async def pause(self, reason: GivingBack, *, within_s: float | None = None) -> None:
        """Take no more jobs, and give back those that do not end within a time (M22).

        `within_s` None is the time that a worker which stops has. `resume` ends it.
        """
        self.paused.add(reason)
        drain_s = self.settings.drain_s if within_s is None else within_s
        await self._deliveries.finish(drain_s, reason)

    def resume(self, reason: GivingBack) -> None:
        """Take jobs again, unless there is another reason not to."""
        self.paused.discard(reason)
        if not self.paused:
            self._deliveries.take_plain_jobs()
        self._credits.top_up()

    def drain(self) -> None:
        """Take no more work; finish or give back what is running; then `run` returns."""
        self._draining.set()

    async def _wind_down(self, pullers: list[asyncio.Task[None]]) -> None:
        self._credits.stop()
        for puller in pullers:
            puller.cancel()
        await self._deliveries.finish(self.settings.drain_s, "drain", for_good=True)

    async def _follow_control(self) -> None:
        control = subjects.all_control(self.session.mesh)
        for attempt in count():
            try:
                async with self.session.log.follow(
                    self.session.confirmed, subject=control
                ) as batches:
                    async for batch in batches:
                        await self.session.feed_control(batch, batch[-1].seq)
            except Unavailable:
                # What an op depends on could not be read. Anyone can write such an op: continue.
                await self.session.pause(min(attempt, LONGEST_PAUSE))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._tasks is None:
            raise RuntimeError("spawned outside run()")
        return self._tasks.create_task(work)
