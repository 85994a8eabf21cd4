"""A worker's slots: how many handlers run at once, and how many jobs it may hold besides.

A job is in the worker's hands from before its claim until its end was read back, and runs in
between. For short runs the two differ much, so a worker of short jobs claims a few ahead
(`core.policy.queue_credit.claims_ahead`), which begin in the order of their claims.

Invariant: never more handlers run than there are slots.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Final

from antiphon.core.policy.queue_credit import claims_ahead

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS_KEPT: Final = 16
"""The last runs that say whether the next ones will be short."""
WAIT_S: Final = 0.5
"""How long a job that was claimed ahead waits for its slot before it is given back."""


class RunSlots:
    """The slots of one worker."""

    def __init__(self, slots: int) -> None:
        """Nothing runs, and nothing is known about runs."""
        self.slots = slots
        self._running: dict[object, float] = {}
        """Since when, the oldest first."""
        self._waiting: dict[object, Callable[[], None]] = {}
        """What each does with its slot, in the order in which they came."""
        self._lasted: deque[float] = deque([math.inf], maxlen=RUNS_KEPT)

    @property
    def room(self) -> int:
        """How many jobs the worker may have in its hands."""
        now_s = asyncio.get_running_loop().time()
        oldest_s = now_s - next(iter(self._running.values()), now_s)
        return self.slots + claims_ahead(self.slots, longest_s=max(self._lasted), oldest_s=oldest_s)

    def enter(self, run: object, begin: Callable[[], None]) -> bool:
        """Whether it has a slot now; else `begin` is called when it has one, unless it leaves."""
        if run in self._running:
            return True
        if len(self._running) < self.slots:
            self._running[run] = asyncio.get_running_loop().time()
            return True
        self._waiting[run] = begin
        return False

    async def take(self, run: object) -> None:
        """Take a slot, or wait for one; `TimeoutError` if there is none soon."""
        turn = asyncio.Event()
        if self.enter(run, turn.set):
            return
        try:
            async with asyncio.timeout(WAIT_S):
                await turn.wait()
        except BaseException:
            self._waiting.pop(run, None)
            self.leave(run)  # it may have been given one in the same moment
            self._lasted.append(math.inf)  # for a while nothing is claimed ahead
            raise

    def leave(self, run: object) -> None:
        """Free its slot, if it has one, for whoever waits."""
        began_s = self._running.pop(run, None)
        if began_s is None:
            return
        now_s = asyncio.get_running_loop().time()
        self._lasted.append(now_s - began_s)
        if self._waiting:
            following = next(iter(self._waiting))
            self._running[following] = now_s
            self._waiting.pop(following)()
