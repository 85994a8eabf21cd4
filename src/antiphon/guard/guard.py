"""Who is being answered, with how much, and what it took: for all that one process answers.

    visit = guard.admit(limits, who, size)      RateLimited: too much is in hand already
    with visit:
        answer = await visit.work(answering)    waits for its turn, and measures

A party is counted over all protocols: requests over NATS and over HTTP are its requests. Its
answers begin while it has used no more processor time than is still free (`shares`), so it rests
in proportion to what its last answers took. Nobody declares what an answer costs.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from antiphon.core.bounded_cache import BoundedCache
from antiphon.errors import RateLimited
from antiphon.guard import metered
from antiphon.guard.limits import Limits, Who
from antiphon.guard.metered import Metered, Turn
from antiphon.guard.shares import Shares, WorkShares

T = TypeVar("T")

WORK: Final = 0.5
STRANGERS_WORK: Final = 0.1
"""Parts of one core: for answers to members, and to those who show no right."""
BYTES: Final = 128 * 1024 * 1024
PARTY_BYTES: Final = 8 * 1024 * 1024
STRANGERS_BYTES: Final = 8 * 1024 * 1024
STRANGERS_PART: Final = 4
"""Of the places of a room, strangers have one in so many."""
MOST_WAIT_S: Final = 2.0
"""How long a request waits for its turn. Who would wait longer is told so at once."""
BUSY_S: Final = 0.25
COSTS_KEPT: Final = 4_096
WRITTEN_KEPT: Final = 65_536


_answered: ContextVar[Visit | None] = ContextVar("visit", default=None)


def answered() -> Visit | None:
    """The visit that is being answered here, in this task or in one that it started."""
    visit = _answered.get()
    return None if visit is None or visit.is_over else visit


async def in_thread(function: Callable[[Turn], T]) -> T:
    """Run a long computation in a thread, measured for whoever is being answered here.

    The function calls the `Turn` that it is given often. It ends when nobody waits for it.
    """
    visit = answered()
    if visit is None:
        return await metered.in_thread(function, lambda _: None, math.inf)
    return await metered.in_thread(function, visit.spend, visit.limits.work_s)


def spend(seconds: float) -> None:
    """Count work that others did for whoever is being answered here, such as the engine."""
    visit = answered()
    if visit is not None:
        visit.spend(seconds)


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


class _Pool:
    """What one sort of askers shares."""

    def __init__(self, work: float, whole: int, each: int, part: int) -> None:
        self.bytes = Shares(whole, each)
        self.work = WorkShares(work)
        self._part = part
        self._rooms: dict[str, Shares] = {}

    def room(self, limits: Limits) -> Shares:
        """The places of a room; whoever names it first says how many."""
        known = self._rooms.get(limits.room)
        if known is None:
            whole = max(limits.in_all // self._part, 1)
            known = self._rooms[limits.room] = Shares(whole, min(limits.of_party, whole))
        return known


class Guard:
    """One for each process that answers."""

    def __init__(self, now_s: Callable[[], float] | None = None, *, work: float = WORK) -> None:
        """`now_s` is a clock that does not go back; None: the event loop's.

        `work` is the part of a core that answers to members may take.
        """
        self.now_s = now_s or _loop_s
        self._members = _Pool(work, BYTES, PARTY_BYTES, 1)
        self._strangers = _Pool(STRANGERS_WORK, STRANGERS_BYTES, PARTY_BYTES, STRANGERS_PART)
        self._costs = BoundedCache[tuple[str, str], float](most=COSTS_KEPT, most_bytes=COSTS_KEPT)
        """By room and party: what its last answer took."""
        self._paused: dict[str, tuple[float, str]] = {}
        self._written = BoundedCache[str, str](most=WRITTEN_KEPT, most_bytes=WRITTEN_KEPT)
        """By op id, or by what an op began: for whom this process wrote it."""

    def admit(self, limits: Limits, who: Who, size: int = 0) -> Visit:
        """A place for a request with so many bytes; `RateLimited` if there is none."""
        self.check_room(limits, who, size)
        return Visit(self, limits, who, size)

    def check_room(self, limits: Limits, who: Who, size: int = 0) -> None:
        """`RateLimited` if there is no room for a request with so many bytes now."""
        pool = self.pool_of(who)
        places = pool.room(limits)
        if not places.has_room(who.party, 1) or not pool.bytes.has_room(who.party, size):
            raise RateLimited("too many requests at once", retry_s=BUSY_S)

    def check_turn(self, who: Who, most_wait_s: float = MOST_WAIT_S) -> float:
        """How long a party has to wait for its turn; `RateLimited` if that is too long.

        Strangers do not wait: nothing is kept in memory for them.
        """
        wait_s = self.rest_s(who)
        if wait_s > (0.0 if who.is_stranger else most_wait_s):
            raise RateLimited(
                "your last requests took much of this node's time",
                retry_s=wait_s,
                hint=f"try again in {wait_s:.1f} s; follow a job by its events, and ask for less"
                " at a time",
            )
        return wait_s

    def pool_of(self, who: Who) -> _Pool:
        """What this asker shares with others of its sort."""
        return self._strangers if who.is_stranger else self._members

    def in_hand(self, limits: Limits, who: Who) -> int:
        """How many requests of a party are in a room."""
        return self.pool_of(who).room(limits).held_by(who.party)

    def spend(self, who: Who, seconds: float) -> None:
        """Count work that was measured elsewhere."""
        if seconds:
            self.pool_of(who).work.note(who.party, seconds, self.now_s())

    def rest_s(self, who: Who) -> float:
        """How long until a party may go on; 0: at once."""
        return self.pool_of(who).work.wait_s(who.party, self.now_s())

    def cost_s(self, limits: Limits, who: Who) -> float:
        """What the party's last answer in this room took."""
        return self._costs.get((limits.room, who.party)) or 0.0

    def note_cost(self, limits: Limits, who: Who, seconds: float) -> None:
        """Remember it."""
        self._costs.put((limits.room, who.party), seconds, 1)

    # --- what is written for parties --------------------------------------------------------------

    def pause(self, party: str, length_s: float, why: str) -> None:
        """Store nothing for a party for a while: it writes faster than the mesh reads."""
        now_s = self.now_s()
        self._paused = {one: told for one, told in self._paused.items() if told[0] > now_s}
        self._paused[party] = (now_s + length_s, why)

    def require_unpaused(self, party: str) -> None:
        """`RateLimited` while a party is paused."""
        until_s, why = self._paused.get(party, (0.0, ""))
        if (left_s := until_s - self.now_s()) > 0:
            raise RateLimited(f"paused for {left_s:.0f} s: {why}", retry_s=left_s)

    def note_written(self, name: str, party: str) -> None:
        """Remember that this process writes something for a party: the record has its own key."""
        self._written.put(name, party, 1)

    def written_for(self, name: str) -> str:
        """For whom it wrote it; empty: for nobody, or that was forgotten."""
        return self._written.get(name) or ""


class Visit:
    """One request in hand. Ends with its `with` block, or by `leave`."""

    __slots__ = ("_guard", "_held", "_pool", "is_over", "limits", "measured_s", "who")

    def __init__(self, guard: Guard, limits: Limits, who: Who, size: int) -> None:
        """Use `Guard.admit`."""
        self.who = who
        self.measured_s = 0.0
        """What its answers took of this thread."""
        self._guard = guard
        self.limits = limits
        self._pool = guard.pool_of(who)
        self._held = size
        self.is_over = False
        self._pool.room(limits).take(who.party, 1)
        self._pool.bytes.take(who.party, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give back its place; again changes nothing."""
        if not self.is_over:
            self.is_over = True
            self._pool.room(self.limits).give_back(self.who.party, 1)
            self._pool.bytes.give_back(self.who.party, self._held)

    def require_unpaused(self) -> None:
        """`RateLimited` while the party is paused."""
        self._guard.require_unpaused(self.who.party)

    def note_written(self, name: str) -> None:
        """Remember that something was written for this party."""
        self._guard.note_written(name, self.who.party)

    def hold(self, size: int) -> None:
        """Count the bytes of an answer; `RateLimited` if the party has too many in hand."""
        if not self._pool.bytes.has_room(self.who.party, size):
            raise RateLimited("too many bytes at once", retry_s=BUSY_S)
        self._held += size
        self._pool.bytes.take(self.who.party, size)

    def spend(self, seconds: float) -> None:
        """Count work that was measured elsewhere."""
        self._guard.spend(self.who, seconds)

    async def turn(self, most_wait_s: float = MOST_WAIT_S) -> None:
        """Wait until the party has used no more than is free; `RateLimited` if that is long."""
        left_s = most_wait_s
        while (wait_s := self._guard.check_turn(self.who, left_s)) > 0:
            await asyncio.sleep(wait_s)
            left_s -= wait_s

    async def work(
        self, answering: Coroutine[Any, Any, T], *, most_wait_s: float = MOST_WAIT_S
    ) -> T:
        """What a coroutine answers, in its turn and measured; of a stream, its next event."""
        guard, limits = self._guard, self.limits
        try:
            await self.turn(most_wait_s)
        except BaseException:
            answering.close()
            raise
        ahead_s = guard.cost_s(limits, self.who)
        took_s = 0.0
        self.spend(ahead_s)  # other requests of this party see it before it is over

        def spend(seconds: float) -> None:
            nonlocal ahead_s, took_s
            took_s += seconds
            self.measured_s += seconds
            self.spend(max(seconds - ahead_s, 0.0))
            ahead_s = max(ahead_s - seconds, 0.0)

        def rest_s() -> float:
            return guard.rest_s(self.who)

        before = _answered.set(self)
        try:
            return await Metered(answering, spend=spend, rest_s=rest_s, most_s=limits.work_s)
        finally:
            _answered.reset(before)
            self.spend(-ahead_s)
            guard.note_cost(limits, self.who, took_s)


__all__ = ["Guard", "Visit", "answered", "in_thread", "spend"]
