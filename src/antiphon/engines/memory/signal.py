"""A wake-up for the tasks that wait now."""

from __future__ import annotations

import asyncio


class Signal:
    """Futures of the tasks that wait now; firing wakes all of them and remembers nothing.

    Safe because there is one loop: a task that finds nothing to do and calls `wait` cannot miss a
    fire in between.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    def fire(self) -> None:
        """Wake everybody."""
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def wait(self) -> None:
        """Sleep until the next fire."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
