"""A service beside a full node: looks at the replica in rounds, when woken or after a pause.

Nothing about one item ends it: what it cannot deal with goes to its `guard`, and what is wrong with
a whole round is told there too. Offers, replicas of jobs, delayed jobs and plans are such services.
Overdue jobs, seals, evictions and watches have loops of their own.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from antiphon.errors import AntiphonError
from antiphon.runtime.attention.item_guard import ItemGuard, reason_of
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.log.writer import Intent, Written
    from antiphon.runtime.node.full_node import Applied, FullNode

MOST_DOUBLINGS: Final = 6
"""Of the pause after rounds that failed one after another."""

K = TypeVar("K", bound=Hashable)
log = LazyLogger(__name__)


class WokenService(ABC):
    """Runs until cancelled; a problem in one round is logged and does not end it."""

    SERVICE: ClassVar[str]
    """Its name for people."""
    WAITS: ClassVar[str]
    """The event that is logged when a round could not be finished."""
    AFTER_PROBLEM_S: ClassVar[float]

    def __init__(self, node: FullNode) -> None:
        """Nothing happens before `run`."""
        self.node = node
        self.guard = ItemGuard[Any](self.SERVICE, node.session, node.replica.attention)
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Look, sleep, and look again, until cancelled."""
        self.node.watchers.append(self._applied)
        self.guard.begin()
        failed = 0
        try:
            while True:
                await self.node.ready.wait()
                self._woken.clear()
                try:
                    pause_s = await self.look()
                    if failed:
                        failed = 0
                        self.guard.recovered()
                except AntiphonError as problem:
                    log.warning(self.WAITS, problem=problem.message)
                    pause_s = self.AFTER_PROBLEM_S
                except Exception as problem:  # noqa: BLE001 - a bug here must not end the node
                    pause_s = self.AFTER_PROBLEM_S * 2 ** min(failed, MOST_DOUBLINGS)
                    failed += 1
                    self.guard.tell(reason_of(problem), problem, failed)
                    await asyncio.sleep(pause_s)  # whatever wakes it
                await self._sleep(pause_s)
        finally:
            self.node.watchers.remove(self._applied)

    @abstractmethod
    async def look(self) -> float | None:
        """One round; seconds until the next one, None: until it is woken."""

    @abstractmethod
    def _applied(self, applied: Applied) -> None:
        """See a record that was just applied; sets `_woken` if it is worth a round."""

    async def write_each(self, intents: Mapping[K, Intent]) -> dict[K, Written]:
        """Write what is independent of one another; the result of each, by its key.

        What raises anything but our own errors is set aside, and has no result.
        """
        try:
            written = await self.node.write_all([*intents.values()])
            return dict(zip(intents, written, strict=True))
        except Exception as problem:  # noqa: BLE001 - which of them it was shows below
            log.warning(self.WAITS, problem=reason_of(problem))
        found: dict[K, Written] = {}
        for key, intent in intents.items():
            with self.guard.about(key):
                (found[key],) = await self.node.write_all([intent])
        return found

    async def _sleep(self, pause_s: float | None) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            pass
