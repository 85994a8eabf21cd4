"""A wake-up for whoever waits, and nothing for whoever does not."""

from __future__ import annotations

import asyncio


class Signal:
    """Futures of those who wait now; firing wakes all of them and remembers nothing.

    Safe because there is one loop: who finds nothing to do and then calls `wait` cannot miss a
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
