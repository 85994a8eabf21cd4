"""A service beside a full node: looks at the replica in rounds, when woken or after a pause."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from antiphon.errors import AntiphonError
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.node.full_node import Applied, FullNode

log = LazyLogger(__name__)


class WokenService(ABC):
    """Runs until cancelled; a problem in one round is logged and does not end it."""

    WAITS: ClassVar[str]
    """The event that is logged when a round could not be finished."""
    AFTER_PROBLEM_S: ClassVar[float]

    def __init__(self, node: FullNode) -> None:
        """Nothing happens before `run`."""
        self.node = node
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Look, sleep, and look again, until cancelled."""
        self.node.watchers.append(self._applied)
        try:
            while True:
                await self.node.ready.wait()
                self._woken.clear()
                try:
                    pause_s = await self.look()
                except AntiphonError as problem:
                    log.warning(self.WAITS, problem=problem.message)
                    pause_s = self.AFTER_PROBLEM_S
                await self._sleep(pause_s)
        finally:
            self.node.watchers.remove(self._applied)

    @abstractmethod
    async def look(self) -> float | None:
        """One round; seconds until the next one, None: until it is woken."""

    @abstractmethod
    def _applied(self, applied: Applied) -> None:
        """See a record that was just applied; sets `_woken` if it is worth a round."""

    async def _sleep(self, pause_s: float | None) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self._woken.wait()
        except TimeoutError:
            pass
