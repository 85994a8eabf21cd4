"""Measures the processor time of a coroutine, step by step, on the loop that it shares.

Only what runs in the coroutine itself is measured: not what waits, and not the tasks that it
starts. A thread measures its own time (`in_thread`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeVar

from antiphon.errors import Rejected

T = TypeVar("T")

TOO_MUCH: Final = "too_much"
"""The reason of an error: an answer took more processor time than one answer may."""
TOLD_S: Final = 0.005
"""After so much work it is counted, and others may have a turn."""
TURN_S: Final = 0.002
"""After so much work a thread rests."""
REST: Final = 1.0
"""How long it rests then, as a multiple of its work: one thread does not take a whole core from
the event loop, which needs the same interpreter."""

Spend = Callable[[float], None]
Turn = Callable[[], None]
"""Called by a function in a thread, often: lets others work; raises when nobody waits for it."""


class Metered(Generic[T]):
    """Awaits a coroutine whose work is counted; past `most_s` it is ended with an error."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        *,
        spend: Spend,
        rest_s: Callable[[], float],
        most_s: float,
    ) -> None:
        """`spend` is told of work now and then; `rest_s` says how long to rest before more."""
        self._work = work
        self._spend = spend
        self._rest_s = rest_s
        self._left_s = most_s
        self._untold_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        """Like the coroutine's own, with rests between its steps."""
        value: Any = None
        raised: BaseException | None = None
        try:
            while True:
                try:
                    waits_for = self._step(value, raised)
                except StopIteration as ended:
                    result: T = ended.value
                    return result
                value = raised = None
                try:
                    value = yield waits_for
                    if self._untold_s >= TOLD_S:
                        yield from self._rest()
                except GeneratorExit:
                    self._work.close()
                    raise
                except BaseException as problem:  # noqa: BLE001 - thrown into the coroutine
                    raised = problem
        finally:
            self._tell()

    def _step(self, value: Any, raised: BaseException | None) -> Any:
        begun_s = time.thread_time()
        try:
            if raised is None and self._left_s < 0:
                raised = _too_much()
            return self._work.send(value) if raised is None else self._work.throw(raised)
        finally:
            took_s = time.thread_time() - begun_s
            self._left_s -= took_s
            self._untold_s += took_s

    def _rest(self) -> Generator[Any, Any, None]:
        self._tell()
        while (rest_s := self._rest_s()) > 0:
            yield from asyncio.sleep(rest_s).__await__()

    def _tell(self) -> None:
        untold_s, self._untold_s = self._untold_s, 0.0
        self._spend(untold_s)


async def in_thread(function: Callable[[Turn], T], spend: Spend, most_s: float) -> T:
    """Run a long computation beside the loop; it ends at its next turn when nobody waits for it.

    The function calls the `Turn` that it is given often: about every millisecond of work.
    """
    is_given_up = threading.Event()
    took_s = 0.0

    def measured() -> T:
        nonlocal took_s
        begun_s = turned_s = time.thread_time()

        def turn() -> None:
            nonlocal turned_s
            now_s = time.thread_time()
            if is_given_up.is_set():
                raise Rejected("nobody waits for this answer any more", reason=TOO_MUCH)
            if now_s - begun_s > most_s:
                raise _too_much()
            if now_s - turned_s >= TURN_S:
                time.sleep(REST * (now_s - turned_s))
                turned_s = now_s

        try:
            return function(turn)
        finally:
            took_s = time.thread_time() - begun_s

    running = asyncio.ensure_future(asyncio.to_thread(measured))
    running.add_done_callback(lambda _: spend(took_s))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        is_given_up.set()
        running.add_done_callback(_seen)
        raise


def _seen(ended: asyncio.Future[Any]) -> None:
    """Nobody awaits it: what it raised is not lost by mistake."""
    if not ended.cancelled():
        ended.exception()


def _too_much() -> Rejected:
    return Rejected(
        "the answer takes more of this node's processor time than one request may have",
        reason=TOO_MUCH,
        hint="ask for less at a time: a smaller limit, a kind, a later time",
    )
