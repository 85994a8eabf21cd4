"""The newest record of each subject, for many askers at once.

A worker under load asks for dozens of lanes in the same moment. The server answers one request
about all of them with far less work than one request each: so while a few requests are under way
the askers gather, and go out together with the next. At rest nobody waits.

Answers are told apart by the last token of a subject, which in a lane is the job; filters that
end differently, or in a wildcard, cannot be told apart and go alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from msgspec import Struct

from antiphon.core.record.subjects import matches
from antiphon.ports import Record

UNDER_WAY = 2
"""Requests that may be under way before askers gather."""
TOGETHER = 64
"""Askers per request: five subjects each stay well below the server's 1024 answers."""
_WILDCARDS = frozenset({"*", ">"})


class Held(Struct, frozen=True, gc=False):
    """A record with its raw headers."""

    record: Record
    header: bytes


Ask = Callable[[tuple[str, ...]], Awaitable[list[Held] | None]]
"""One request; None if the server found too many subjects."""


class _Asker:
    __slots__ = ("answer", "end", "filters")

    def __init__(self, filters: tuple[str, ...], end: str) -> None:
        self.filters = filters
        self.end = end
        self.answer: asyncio.Future[list[Held] | None] = asyncio.get_running_loop().create_future()

    def wants(self, subject: str) -> bool:
        return any(matches(one, subject) for one in self.filters)


class NewestRecords:
    """Gathers askers. `ask` is what sends one request and collects its answers."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._under_way = 0
        self._gathered: deque[_Asker] = deque()
        self._carriers: set[asyncio.Task[None]] = set()

    async def of(self, filters: tuple[str, ...]) -> list[Held] | None:
        """The newest record of each matching subject; None if there are more than 1024."""
        end = filters[0].rpartition(".")[2]
        others = [one for one in filters if not one.endswith(f".{end}")]
        if others or end in _WILDCARDS:
            return await self._ask(filters)
        if self._under_way < UNDER_WAY:
            self._under_way += 1
            try:
                return await self._ask(filters)
            finally:
                self._under_way -= 1
                self._go_on()
        asker = _Asker(filters, end)
        self._gathered.append(asker)
        return await asker.answer

    def _go_on(self) -> None:
        """Send those who gathered, now that there is room."""
        if not self._gathered or self._under_way >= UNDER_WAY:
            return
        askers: list[_Asker] = []
        while self._gathered and len(askers) < TOGETHER:
            asker = self._gathered.popleft()
            if not asker.answer.done():  # else its caller has gone
                askers.append(asker)
        if askers:
            self._under_way += 1
            carrier = asyncio.ensure_future(self._carry(askers))
            self._carriers.add(carrier)
            carrier.add_done_callback(self._carriers.discard)

    async def _carry(self, askers: list[_Asker]) -> None:
        try:
            together = tuple(one for asker in askers for one in asker.filters)
            found = await self._ask(together)
            if found is None and len(askers) > 1:
                # One asker's subjects are too many; the others should not fail for it.
                for asker in askers:
                    _give(asker, await self._ask(asker.filters))
            else:
                _hand_out(askers, found)
        except asyncio.CancelledError:
            for asker in askers:
                asker.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - every asker gets it
            for asker in askers:
                if not asker.answer.done():
                    asker.answer.set_exception(error)
        finally:
            self._under_way -= 1
            self._go_on()


def _give(asker: _Asker, found: list[Held] | None) -> None:
    if not asker.answer.done():
        asker.answer.set_result(found)


def _hand_out(askers: list[_Asker], found: list[Held] | None) -> None:
    if found is None:
        _give(askers[0], None)
        return
    by_end: dict[str, list[Held]] = {}
    for held in found:
        by_end.setdefault(held.record.subject.rpartition(".")[2], []).append(held)
    wanted = Counter(asker.end for asker in askers)
    for asker in askers:
        mine = by_end.get(asker.end, [])
        if wanted[asker.end] > 1:
            # Jobs of the same content under several kinds, asked for together.
            mine = [held for held in mine if asker.wants(held.record.subject)]
        _give(asker, mine)
