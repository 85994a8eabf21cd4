"""People who answer questions: machines with keys of their own, as fallible as all others.

A person sees which questions are open, takes one after a while and answers it, by the runtime's own
way. Machines of people are killed, frozen and cut off like workers: then a question was taken for
nothing, and is open again later.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.state import State
from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.caller.answers import answer
from simulator.actors.machines import Machine

if TYPE_CHECKING:
    from antiphon.testing.host_clock import HostClock
    from simulator.cluster import Cluster

QUESTION_KIND: Final = "people.approve"
CHOICES: Final = ("yes", "no", "later")
EVERY_S: Final = (1.0, 15.0)
OPEN_S: Final = (15.0, 240.0)
"""How long questions are open: some for too short a time."""
ASKED_EVERY: Final = 4
ASKED_AT: Final = 2
"""Of so many jobs, the one that asks."""


class PersonMachine(Machine):
    """Answers what is open."""

    def __init__(self, cluster: Cluster, name: str, *, clock: HostClock) -> None:
        super().__init__(cluster, name, clock=clock)
        self._chance = random.Random(f"{cluster.seed}/{name}/answers")

    async def run(self) -> None:
        """Until the machine is killed."""
        session = self.connect()
        await session.sync_control()
        while True:
            await asyncio.sleep(self._chance.uniform(*EVERY_S))
            found = [
                lane.job
                for lane in self.cluster.referee.lanes.values()
                if lane.job is not None
                and lane.job.question is not None
                and lane.job.state is State.PENDING
            ]
            if found:
                job, said = self._chance.choice(found), self._chance.choice(CHOICES)
                with suppress(Conflict, Rejected, Unavailable):
                    await answer(session, job.kind, job.id, said)
